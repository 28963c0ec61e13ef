#!/bin/sh
# rmqctl by spark-submit: MASTER STORE, MASTER one of local[N], spark://HOST:7077, yarn, k8s://https://HOST:443.
# STORE is seen by the driver and by all executors under the same path. Executors need rmqctl's libraries (numba, numpy, ...) and pyarrow
# in the Python that PYSPARK_PYTHON names; rmqctl itself is sent. The result is on stdout, and behind it our remarks, which spark-submit
# puts there, too; Spark's log is on stderr. The exit code is ours in client mode.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
master=$1 store=$2
shift 2
case $master in
yarn) # environment and environment.tar.gz in the current folder, as in man rmqctl-spark; HADOOP_CONF_DIR says where YARN is
    export PYSPARK_PYTHON=./environment/bin/python
    set -- --deploy-mode client --archives environment.tar.gz#environment --num-executors 8 --executor-cores 4 --executor-memory 4g "$@"
    ;;
k8s*) # an image with rmqctl and pyarrow, and a volume that has the stores at the same path for all
    set -- --deploy-mode client --conf spark.kubernetes.container.image="${IMAGE:?an image with rmqctl and pyarrow}" \
        --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.stores.options.claimName="${CLAIM:?a claim with the stores}" \
        --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.stores.mount.path="${MOUNT:-/mnt}" \
        --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.stores.mount.readOnly=true \
        --conf spark.executor.instances=8 "$@"
    ;;
spark*) set -- --total-executor-cores 32 --executor-memory 4g "$@" ;;
esac
exec spark-submit --master "$master" "$@" "$here/submit.py" job verify "$store" -o json
