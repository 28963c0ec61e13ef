"""RocketMQ's AutoSwitchHAClient, which is always an async learner in rmqctl."""

from __future__ import annotations

from rmqctl.store.ha.auto_switch_frames import (
    AUTO_SWITCH_TRANSFER,
    MASTER_HANDSHAKE,
    TRANSFER_STATE,
    EpochEntry,
    decode_epochs,
    encode_auto_switch_report,
    encode_handshake,
    handshake_problem,
)
from rmqctl.store.ha.frames import HA_HOUSEKEEPING_INTERVAL, TransferHeader
from rmqctl.store.ha.ha_client import HAClient

LEARNER_ID = 2**31 - 1  # no broker's id; a master checks only the ids of slaves that it counts


class AutoSwitchHAClient(HAClient):
    """A connection to the HA port of a master that runs with a controller.

    `epochs` are the master's epochs, from the handshake and from later transfers.
    """

    sends_last_file_for_0 = False
    header_size = AUTO_SWITCH_TRANSFER.size

    def __init__(self, host: str, port: int, *, silence: float = HA_HOUSEKEEPING_INTERVAL) -> None:
        super().__init__(host, port, silence=silence)
        self.epochs: list[EpochEntry] = []

    def begin(self, offset: int) -> None:
        """Exchange handshakes, and ask for the log from the physical offset `offset`."""
        self._send(encode_handshake(LEARNER_ID, is_async_learner=True))
        state, body_size, _, _ = MASTER_HANDSHAKE.struct.unpack(self._exactly(MASTER_HANDSHAKE.size))
        problem = handshake_problem(state, body_size)
        if problem:
            raise self._broken(problem)
        try:
            self.epochs = decode_epochs(self._exactly(body_size))
        except ValueError as error:
            raise self._broken(str(error)) from error
        super().begin(offset)

    def _encode_report(self, max_offset: int) -> bytes:
        return encode_auto_switch_report(max_offset)

    def _decode_transfer(self, raw: memoryview) -> TransferHeader:
        state, size, offset, epoch, epoch_start, _ = AUTO_SWITCH_TRANSFER.struct.unpack(raw)
        if state != TRANSFER_STATE:
            raise self._broken(f"the transfer has the state {state}, not {TRANSFER_STATE}")
        last = self.epochs[-1] if self.epochs else EpochEntry(-1, -1)
        if size and epoch > last.epoch:
            if epoch_start < last.start_offset:
                raise self._broken(f"epoch {epoch} begins at {epoch_start}, before {last.start_offset}")
            self.epochs.append(EpochEntry(epoch, epoch_start))
        return TransferHeader(offset, size)
