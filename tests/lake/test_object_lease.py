"""A lease on an object store whose answers are lost, and whose objects others change."""

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from include.lake import lease as object_lease
from include.lake.lease import ObjectLease
from tests.refused import refused

PATH = "leases/stream-x.json"
HELD = {"pid": 1, "host": "here"}


@pytest.fixture
def store(monkeypatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(object_lease, "from_url", lambda _: made)
    return made


@pytest.fixture
def lease(store) -> ObjectLease:
    made = ObjectLease("s3a://bucket/lake", "stream-x")
    assert made.take(HELD)
    return made


def loses_answers(monkeypatch, lost: int) -> None:
    """The next puts are made, and their answers do not come."""
    left, real = [None] * lost, obstore.put

    def put(*args, **named):
        answer = real(*args, **named)
        if left:
            left.pop()
            raise GenericError("the connection was closed")
        return answer

    monkeypatch.setattr(obstore, "put", put)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_holder_whose_renewals_went_unanswered_has_not_lost_it(lease, monkeypatch, lost):
    loses_answers(monkeypatch, lost)
    for _ in range(lost):
        with pytest.raises(GenericError):
            lease.renew()
    lease.renew()
    loses_answers(monkeypatch, 1)
    with pytest.raises(GenericError):
        lease.renew()
    lease.give_back()
    assert lease.holder() is None
    assert ObjectLease(lease.root, lease.name).take({"pid": 2, "host": "here"})


def test_a_lease_that_another_one_has_taken_is_lost_after_an_unanswered_renewal(
    store, lease, monkeypatch
):
    with monkeypatch.context() as patch:
        loses_answers(patch, 1)
        with pytest.raises(GenericError):
            lease.renew()
    lease_of_other = ObjectLease(lease.root, lease.name, expiry_s=-1)
    assert lease_of_other.take({"pid": 2, "host": "here"})
    with refused("lease_lost", subject=lease.name):
        lease.renew()


@pytest.mark.parametrize("is_not_found", [True, False])
def test_a_lease_that_was_deleted_is_lost(store, lease, monkeypatch, is_not_found):
    obstore.delete(store, PATH)
    if is_not_found:  # so S3 answers a put that asks for a state of what is not there

        def put(*_, **__):
            raise FileNotFoundError(PATH)

        monkeypatch.setattr(obstore, "put", put)
    for ours in (lease.renew, lease.give_back):
        with refused("lease_lost", subject=lease.name):
            ours()
