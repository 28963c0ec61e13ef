"""URLs as paths, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.remote_storage import is_remote, root_path, root_text


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://bucket/incident/broker-a/store", "/:s3:/bucket/incident/broker-a/store"),
        ("hdfs://name:8020/store", "/:hdfs:/name:8020/store"),
        ("hdfs:///store", "/:hdfs:/@/store"),
        ("abfss://logs@account.dfs.core.windows.net/store", "/:abfss:/logs@account.dfs.core.windows.net/store"),
        ("fsspec+local:///data/store", "/:fsspec+local:/@/data/store"),
    ],
)
def test_a_url_is_an_absolute_path_and_comes_back(url: str, path: str) -> None:
    assert root_path(url) == Path(path)
    assert root_path(path) == Path(path)
    assert is_remote(root_path(url))
    assert root_text(root_path(url)) == url
    assert root_text(root_path(url) / "commitlog") == f"{url}/commitlog"


@pytest.mark.parametrize(
    "text", ["/data/store", "store", "../a:b", "c:/store", "s3:/bucket", "/x:/y", "/data:/s", "file:///data/store"]
)
def test_all_else_is_a_path_of_this_host(text: str) -> None:
    path = root_path(text)
    assert not is_remote(path)
    assert root_text(path) == str(Path(text.removeprefix("file://")).absolute())


@pytest.mark.parametrize("bucket", ["bucket", "bucket/deep/store"])
def test_a_query_keeps_its_slashes_and_every_path_below_has_it(bucket: str) -> None:
    query = "?endpoint_override=http://host:9000&scheme=http"
    root = root_path(f"s3://{bucket}{query}")
    assert is_remote(root)
    assert root_text(root) == f"s3://{bucket}{query}"
    file = root / "commitlog" / "0"
    assert root_text(file) == f"s3://{bucket}/commitlog/0{query}"
    assert root_path(root_text(file)) == file
    assert root_path(f"s3://{bucket}/{query}") == root
    assert root.name.partition("?")[0] == bucket.rpartition("/")[2]


def test_a_scheme_in_capitals() -> None:
    assert root_text(root_path("S3://bucket/store")) == "s3://bucket/store"


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadRequest, match="a s3:// URL with a password in it") as refused:
        root_path("s3://AKIA:hidden@bucket/store")
    assert "hidden" not in f"{refused.value} {refused.value.hint}"


def test_files_of_another_host_are_refused() -> None:
    with pytest.raises(BadRequest, match="file://host/store: a file of another host"):
        root_path("file://host/store")
