"""`rmqctl` for spark-submit, which takes a file: submit.sh has whole lines."""

from rmqctl.cli.main import main

main()
