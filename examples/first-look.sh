#!/bin/sh
# A first look: a store that a real RocketMQ 4.9.7 broker wrote under real clients, before and after one bit of it flips; repaired, and taken back.
# Needs rmqctl on PATH (or RMQCTL). Works in a temporary folder and leaves nothing behind.
set -eu
rmqctl=${RMQCTL:-rmqctl}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n$ %s\n' "$*"; }
run() { say "$@"; "$@" || status=$?; }

python3 -m tarfile -e "$here/broker-497.tar.xz" "$work" 2>/dev/null
cd "$work"

run "$rmqctl" info store
run "$rmqctl" verify store
[ "${status:-0}" = 0 ]

say "flip one bit: byte 70450 of the log's first file"
python3 - <<'PY'
with open("store/commitlog/00000000000000000000", "r+b") as file:
    file.seek(70450)
    byte = file.read(1)[0]
    file.seek(70450)
    file.write(bytes([byte ^ 0x10]))
PY

status=0
run "$rmqctl" verify store
say "the exit status was $status; what does that finding mean?"
[ "$status" = 1 ]
run "$rmqctl" explain bad-body-crc
run "$rmqctl" dump store --around 70450 --context 2 --body utf8

say "a broker that died, and its checkpoint is gone: what would a restart lose?"
: > store/abort
rm store/checkpoint
cp -R store before
status=0
run "$rmqctl" recover store --dry-run
[ "$status" = 1 ]
say "keep all but the damaged message"
status=0
run "$rmqctl" recover store --keep-going --yes
[ "$status" = 3 ]
status=0
run "$rmqctl" verify store
[ "$status" = 0 ]
say "and back, byte for byte"
run "$rmqctl" undo store --yes
diff -r store before && say "store is as it was before"
