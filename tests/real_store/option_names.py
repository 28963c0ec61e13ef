"""Write rmqctl/forensics/preflight/option_names.txt: the names of broker.conf, by the versions that know them.

python -m tests.real_store.option_names REPOSITORY

REPOSITORY is a clone of apache/rocketmq. A broker takes a name if its configuration classes have a setter for it with a
plain type (MixAll.properties2Object). Versions without a tag in the repository are asked by their jars.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from rmqctl.forensics.preflight import option_names
from rmqctl.format.profile import VERSIONS
from tests.real_store import java_build

CLASSES = (
    "MessageStoreConfig", "TieredMessageStoreConfig", "BrokerConfig", "BrokerIdentity", "NettyServerConfig",
    "NettyClientConfig", "AuthConfig",
)  # fmt: skip
IN_JARS = (
    "org.apache.rocketmq.store.config.MessageStoreConfig", "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.common.BrokerIdentity", "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig", "org.apache.rocketmq.auth.config.AuthConfig",
    "org.apache.rocketmq.tieredstore.MessageStoreConfig",
)  # fmt: skip
TYPES = r"(?:int|long|double|boolean|float|(?:java\.lang\.)?(?:String|Integer|Long|Double|Boolean|Float))"
SETTER = re.compile(rf"public (?:synchronized )?void set(\w+)\(\s*(?:final )?{TYPES}\b")
OF_EACH = {"rmqAddressServerDomain", "rmqAddressServerSubGroup"}  # BrokerStartup.properties2SystemEnv
NOT_TO_BE_HAD = {"4.5.0": "4.5.1", "5.3.4": "5.3.3"}  # taken for
WHOLE = {"5.5.1": "5.5.0"}  # Maven Central has only the store's jars


def _run(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def _names(version: str, repository: str, tags: list[str]) -> set[str]:
    version = NOT_TO_BE_HAD.get(version, version)
    tag = next((one for one in tags if one.removesuffix("-incubating") == f"rocketmq-all-{version}"), None)
    if tag is None:
        of_store, of_broker = java_build.prepare_store(version), java_build.prepare(WHOLE.get(version, version))
        text = _run("javap", "-public", "-cp", f"{of_store}:{of_broker}", *IN_JARS)
    else:
        git = ("git", f"--git-dir={repository}")
        paths = _run(*git, "ls-tree", "-r", "--name-only", tag).splitlines()
        found = [path for path in paths if "/src/main/" in path and Path(path).stem in CLASSES]
        text = "".join(_run(*git, "show", f"{tag}:{path}") for path in found)
    names = {name[0].lower() + name[1:] for name in SETTER.findall(text)}
    if not names:
        raise SystemExit(f"no names for {version}")
    return names | OF_EACH


def main() -> None:
    """Write the file."""
    tags = _run("git", f"--git-dir={sys.argv[1]}", "tag").split()
    known = [_names(version, sys.argv[1], tags) for version in VERSIONS]
    spans: list[tuple[str, str, str]] = []
    for name in sorted(set().union(*known)):
        runs = groupby(range(len(VERSIONS)), [name in of_version for of_version in known].__getitem__)
        for numbers in (list(run) for is_known, run in runs if is_known):
            last = "" if numbers[-1] == len(VERSIONS) - 1 else VERSIONS[numbers[-1]]
            spans.append((VERSIONS[numbers[0]], last, name))
    spans.sort(key=lambda one: (VERSIONS.index(one[0]), VERSIONS.index(one[1]) if one[1] else len(VERSIONS), one[2]))
    lines = [
        f"{first}-{last} {' '.join(name for *_, name in same)}\n"
        for (first, last), same in groupby(spans, lambda one: one[:2])
    ]
    Path(option_names.__file__).with_name(option_names.FILE).write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
