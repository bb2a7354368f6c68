"""Whatever is cut, killed, repeated or late: each frame has one answer, or is reported once."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.errors import DeliveryError, StorageError
from penstock.runtime.islands.delivery import (
    DropOldest,
    Inbox,
    Key,
    Outbox,
    Wait,
    is_late,
    key_of,
)
from penstock.runtime.islands.journal import START, FileJournal
from penstock.runtime.islands.protocol import Answer, Frame


@pytest.fixture
def journal():
    """Opens journals; whoever had one before was killed, and the system has closed its files."""
    opened = {}

    def open_(path):
        if path in opened:
            opened.pop(path).close()
        opened[path] = FileJournal(path)
        return opened[path]

    yield open_
    for one in opened.values():
        one.close()


def frame(sequence, *, stream=7, payload=b"abc", captured_us=0, deadline_ms=0) -> Frame:
    return Frame(1, stream, sequence, captured_us, payload, deadline_ms=deadline_ms)


class Boxes(RuleBasedStateMachine):
    """An outbox against a list: what is kept, in which order it is sent, and that nothing is lost or said twice."""

    def __init__(self):
        super().__init__()
        self.box = Outbox(4, DropOldest())
        self.waiting, self.in_flight, self.done, self.dropped, self.last = [], [], [], [], 0
        self.accepted = set()

    @rule(deadline_ms=st.sampled_from([0, 0, 1, 3]))
    def put(self, deadline_ms):
        self.last += 1
        lost = self.box.put(frame(self.last, captured_us=1000 * self.last, deadline_ms=deadline_ms))
        expected = None
        if len(self.waiting) + len(self.in_flight) >= 4:
            expected = (
                min(self.waiting or self.in_flight, key=lambda one: one.sequence)
                if not self.waiting
                else self.waiting[0]
            )
            (self.waiting or self.in_flight).remove(expected)
            self.dropped.append(expected.sequence)
        assert (lost and lost.sequence) == (expected and expected.sequence)
        self.waiting.append(frame(self.last, captured_us=1000 * self.last, deadline_ms=deadline_ms))

    @rule()
    def put_again(self):
        for known in self.waiting + self.in_flight:
            assert self.box.put(known) is None

    @rule(window=st.integers(1, 3))
    def take(self, window):
        taken = self.box.take(window)
        if self.waiting and len([one for one in self.in_flight if one.sequence not in self.accepted]) < window:
            assert taken == self.waiting[0]
            self.in_flight.append(self.waiting.pop(0))
            self.accepted.discard(taken.sequence)
        else:
            assert taken is None

    @rule(data=st.data())
    def answer(self, data):
        sequence = data.draw(st.integers(1, self.last + 1))
        every = {one.sequence: one for one in self.waiting + self.in_flight}
        acked = self.box.ack(Key(7, sequence))
        assert acked == every.get(sequence)
        if acked:
            self.done.append(sequence)
            self.waiting = [one for one in self.waiting if one != acked]
            self.in_flight = [one for one in self.in_flight if one != acked]

    @rule(data=st.data())
    def accept(self, data):
        sequence = data.draw(st.integers(1, self.last + 1))
        self.box.accept(Key(7, sequence))
        if sequence in [one.sequence for one in self.in_flight]:
            self.accepted.add(sequence)

    @rule()
    def cut(self):
        assert self.box.resend() == len(self.in_flight)
        self.waiting = sorted(self.in_flight, key=lambda one: one.sequence) + self.waiting
        self.in_flight = []
        self.accepted.clear()

    @rule(later=st.integers(0, 6))
    def wait(self, later):
        now = 1000 * (self.last + later)
        late = self.box.pop_late(now)
        assert sorted(late) == sorted(one for one in self.waiting + self.in_flight if is_late(one, now))
        self.dropped += [one.sequence for one in late]
        self.waiting = [one for one in self.waiting if one not in late]
        self.in_flight = [one for one in self.in_flight if one not in late]

    @invariant()
    def each_frame_is_in_one_place(self):
        kept = [one.sequence for one in self.waiting + self.in_flight]
        in_flight = [one for one in self.in_flight if one.sequence not in self.accepted]
        assert len(self.box) == len(kept) <= 4 and len(self.box._in_flight) == len(in_flight)
        assert sorted(kept + self.done + self.dropped) == list(range(1, self.last + 1))


TestBoxes = Boxes.TestCase
TestBoxes.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_full_buffer_makes_who_fills_it_wait():
    box = Outbox(2, Wait())
    box.put(frame(1))
    assert not box.full
    box.put(frame(2))
    assert box.full
    with pytest.raises(DeliveryError, match="2 frames"):
        box.put(frame(3))
    assert [one.sequence for one in box.clear()] == [1, 2] and not len(box)
    with pytest.raises(DeliveryError, match=r"capacity.*0"):
        Outbox(0)


def test_what_a_receiver_has_seen_it_recognises():
    inbox = Inbox(memory=2)
    key = key_of(frame(1))
    assert inbox.answer_to(key) is None
    assert inbox.start(key) and not inbox.start(key) and len(inbox) == 1
    answers = [Answer(7, sequence, 0, 1) for sequence in (1, 2, 3)]
    inbox.answer(key_of(answers[0]), answers[0])
    assert inbox.answer_to(key) == answers[0] and len(inbox) == 0
    inbox.answer(key_of(answers[1]), answers[1])
    inbox.answer(key_of(answers[2]), answers[2])
    assert inbox.answer_to(key) is None and inbox.start(key), "what is forgotten is run again, and gets the same answer"
    assert inbox.start(key_of(frame(1, stream=8))), "another stream is another frame"


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), capacity=st.integers(1, 6), memory=st.integers(1, 6), cuts=st.floats(0, 0.4))
def test_over_a_link_that_is_cut_each_frame_is_answered_once(seed, capacity, memory, cuts):
    """A sender, a receiver that may be killed, and messages that get lost on the way, driven at random."""
    draw = random.Random(seed)
    box, inbox = Outbox(capacity, Wait()), Inbox(memory)
    todo, up, down, said = list(range(30)), [], [], []
    while len(said) < 30:
        step = draw.random()
        if step < cuts:  # the link is cut: all that is on the way is lost
            up, down = [], []
            box.resend()
            if draw.random() < 0.5:  # because the receiver was killed
                inbox = Inbox(memory)
        elif step < cuts + 0.2 and todo and not box.full:
            box.put(frame(todo.pop(0)))
        elif step < cuts + 0.4 and (taken := box.take(3)) is not None:
            up.append(taken)
        elif step < cuts + 0.6 and up:
            key = key_of(up.pop(0))
            if (answer := inbox.answer_to(key)) is not None:
                down.append(answer)
            else:
                inbox.start(key)
        elif step < cuts + 0.8 and len(inbox):
            key = draw.choice(sorted(inbox._pending))
            inbox.answer(key, Answer(*key, label=key.sequence % 5, exit_stage=1))
            down.append(Answer(*key, label=key.sequence % 5, exit_stage=1))
        elif down:
            answer = down.pop(draw.randrange(len(down)))
            if box.ack(key_of(answer)) is not None:
                said.append(answer)
    assert sorted(answer.sequence for answer in said) == list(range(30))
    assert all(answer.label == answer.sequence % 5 for answer in said)


def test_a_journal_has_what_was_kept_and_not_settled(journal, tmp_path):
    path = tmp_path / "frames.journal"
    box = Outbox(10, journal=journal(path))
    for sequence in range(5):
        box.put(frame(sequence, payload=bytes([sequence]) * 100))
    box.take(5)
    box.ack(Key(7, 0))
    box.ack(Key(7, 3))
    again = Outbox(10, journal=journal(path))  # the other was killed: nothing closed it
    assert [one.sequence for one in iter(lambda: again.take(9), None)] == [1, 2, 4]
    assert journal(path).frames()[0] == frame(1, payload=b"\x01" * 100)


def test_a_record_that_a_kill_cut_off_is_left_out(journal, tmp_path):
    path = tmp_path / "frames.journal"
    first = journal(path)
    for sequence in range(3):
        first.append(frame(sequence))
    whole = path.read_bytes()
    sizes = []
    for length in range(len(START), len(whole) + 1):
        path.write_bytes(whole[:length])
        sizes.append(len(journal(path).frames()))
    assert sizes == sorted(sizes) and sizes[0] == 0 and sizes[-1] == 3
    path.write_bytes(whole[:-2])
    again = journal(path)
    again.append(frame(9))
    assert [one.sequence for one in journal(path).frames()] == [0, 1, 9], "what comes behind it is found again"


def test_a_journal_does_not_grow_for_ever(journal, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.runtime.islands.journal.SLACK", 1000)
    path = tmp_path / "frames.journal"
    box = Outbox(3, DropOldest(), journal(path))
    for sequence in range(500):
        box.put(frame(sequence, payload=bytes(200)))
        assert path.stat().st_size < 3000
    assert [one.sequence for one in journal(path).frames()] == [497, 498, 499]


def test_a_journal_is_of_one_process(journal, tmp_path):
    path = tmp_path / "frames.journal"
    journal(path).append(frame(1))
    with pytest.raises(StorageError, match=r"frames\.journal is in use"):
        FileJournal(path)
    assert [one.sequence for one in journal(path).frames()] == [1]


def test_half_a_record_hides_nothing(journal, tmp_path):
    class Full:
        """A file on a disk that has room for ten bytes."""

        def __init__(self, file):
            self.file = file

        def write(self, content):
            return self.file.write(content[:10])

        def __getattr__(self, name):
            return getattr(self.file, name)

    path = tmp_path / "frames.journal"
    kept = journal(path)
    box = Outbox(2, DropOldest(), kept)
    box.put(frame(1))
    box.put(frame(2))
    whole, kept._file = kept._file, Full(kept._file)
    with pytest.raises(StorageError, match=r"frames\.journal: No space left"):
        box.put(frame(3))
    assert len(box) == 2, "nothing was dropped for what could not be kept"
    assert box.ack(Key(7, 1)).sequence == 1, "an answer counts, whether or not it can be written down"
    kept._file = whole
    box.put(frame(4))
    assert [one.sequence for one in journal(path).frames()] == [1, 2, 4]


def test_a_disk_without_room_to_write_the_journal_anew_costs_nothing(journal, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("penstock.runtime.islands.journal.SLACK", 1000)
    path = tmp_path / "frames.journal"
    box = Outbox(20, journal=journal(path))
    for sequence in range(20):
        box.put(frame(sequence, payload=bytes(200)))

    def full(path, content, *, private=False):
        raise StorageError(f"{path} could not be written: No space left on device.")

    monkeypatch.setattr("penstock.runtime.islands.journal.write_atomically", full)
    for sequence in range(18):
        assert box.ack(Key(7, sequence)) is not None
    assert caplog.text.count("cannot compact") == 1
    box.put(frame(99))
    path.write_bytes(path.read_bytes() + b"half a record")
    again = journal(path)  # which has no room either
    assert [one.sequence for one in again.frames()] == [18, 19, 99]
    again.append(frame(100))
    monkeypatch.undo()
    assert [one.sequence for one in journal(path).frames()] == [18, 19, 99, 100]
    assert path.stat().st_size < 1000 and path.stat().st_mode & 0o077 == 0


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_damaged_byte_costs_one_frame_and_is_said(journal, tmp_path, caplog, data):
    path = tmp_path / "frames.journal"
    path.unlink(missing_ok=True)
    first = journal(path)
    for sequence in range(1, 9):  # of one length each
        first.append(frame(sequence, payload=bytes([sequence]) * 40))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(len(START), len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    caplog.clear()
    kept = [one.sequence for one in journal(path).frames()]
    hit = (at - len(START)) * 8 // (len(content) - len(START)) + 1
    assert kept == [sequence for sequence in range(1, 9) if sequence != hit]
    if hit < 8:  # the last one may as well have been cut off by a kill
        assert caplog.text.count("frames.journal are damaged") == 1
        assert (tmp_path / "frames.journal.damaged").read_bytes() == content
    assert [one.sequence for one in journal(path).frames()] == kept


def test_a_file_that_is_no_journal_is_not_touched(journal, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(StorageError, match=r"notes\.txt is not a journal"):
        journal(path)
    assert path.read_text() == "mine"
    with pytest.raises(StorageError, match="could not be"):
        journal(tmp_path / "notes.txt" / "inside")
