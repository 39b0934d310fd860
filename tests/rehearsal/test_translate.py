"""Nothing of the file is changed but addresses, ports and folders, and these wherever they are."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.rehearsal.cluster import IMAGE_PROJECT, IMAGE_VENV
from tests.rehearsal.compose_file import Service
from tests.rehearsal.interpolation import ComposeError
from tests.rehearsal.translate import HOST, Places, free_ports, ports_of, translate


def places_for(services: dict[str, Service], folder: Path) -> Places:
    return Places(
        ports=ports_of(services.values()),
        image_folders={IMAGE_PROJECT: folder / "project", IMAGE_VENV: folder / "venv"},
        volumes=folder / "volumes",
        project=folder / "project",
    )


def untranslated(service: Service, services: dict[str, Service], places: Places) -> Service:
    """Undo the named translations, by plain text: an oracle that shares no code with them."""
    back = {f"{HOST}:{ours}": f"{name}:{port}" for (name, port), ours in places.ports.items()}
    back |= {str(ours): target for target, ours in places.folders(service).items()}
    back |= {str(places.ports[service.name, port]): str(port) for port in service.ports}

    def undo(word: str) -> str:
        for ours in sorted(back, key=len, reverse=True):
            word = word.replace(ours, back[ours])
        return word

    return replace(
        service,
        command=tuple(map(undo, service.command)),
        environment={name: undo(value) for name, value in service.environment.items()},
        health=service.health
        and replace(service.health, command=tuple(map(undo, service.health.command))),
    )


def test_nothing_but_the_named_translations_differs_in_the_project_s_file(
    project_services, tmp_path
):
    places = places_for(project_services, tmp_path / "here")
    for service in project_services.values():
        translated = translate(service, project_services, places)
        undone = untranslated(translated, project_services, places)
        for field in fields(Service):
            if field.name in ("command", "environment", "health"):
                continue
            assert getattr(translated, field.name) == getattr(service, field.name), field.name
        assert loopback(undone, project_services) == loopback(service, project_services)


def loopback(service: Service, services: dict[str, Service]) -> list[str]:
    """All words of a service, with what is the loopback address by another name named so."""
    names = "|".join(map(re.escape, services))
    words = [*service.command, *(service.health.command if service.health else ())]
    lone = [words[0], *(HOST if word in services else word for word in words[1:])]
    lone += [f"{name}={value}" for name, value in sorted(service.environment.items())]
    # `service:port` and an own port at the loopback address look alike once translated.
    plain = rf"(?<![\w.-])(?:{names}|0\.0\.0\.0|127\.0\.0\.1)(?=:\d|$)"
    return [re.sub(plain, HOST, word) for word in lone]


def test_no_container_s_address_or_folder_is_left(project_services, tmp_path):
    places = places_for(project_services, tmp_path / "here")
    for service in project_services.values():
        translated = translate(service, project_services, places)
        targets = "|".join(map(re.escape, places.folders(service)))
        addresses = "|".join(f"{name}:\\d" for name in project_services)
        words = [*translated.command, *translated.environment.values()]
        words += translated.health.command if translated.health else ()
        for word in words:
            inside = word.replace(str(tmp_path), "")
            assert not re.search(rf"(^|[\s=:,'\"])({targets})(/|$)", inside), word
            assert not re.search(addresses, word), word


ONE = Service(name="one", ports=(80, 7077), command=("run",))
TWO = Service(name="two", ports=(5432,))
BOTH = {"one": ONE, "two": TWO}
PORTS = {("one", 80): 20001, ("one", 7077): 20002, ("two", 5432): 20003}
PLACES = Places(
    ports=PORTS,
    image_folders={"/opt/ours": Path("/p"), "/opt/ours/sub": Path("/s")},
    volumes=Path("/v"),
    project=Path("/p"),
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("pg://u:pw@two:5432/db", f"pg://u:pw@{HOST}:20003/db"),
        ("http://localhost:80/x", "http://localhost:20001/x"),
        ("--port=7077", "--port=20002"),
        ("spark://one:7077,two:5432", f"spark://{HOST}:20002,{HOST}:20003"),
        ("0.0.0.0", HOST),
        ("/opt/ours/a:/opt/ours/sub/b", "/p/a:/s/b"),
        ("file:///opt/ours", "file:///p"),
        # These only look like it.
        ("8080 180 80.5 1.80 a80 80a -80-", "8080 180 80.5 1.80 a80 80a -80-"),
        ("twenty-two:5432 x.two:5432", "twenty-two:5432 x.two:5432"),
        ("/opt/ours-too /x/opt/ours /opt/oursx", "/opt/ours-too /x/opt/ours /opt/oursx"),
        ("two one 10.0.0.0", "two one 10.0.0.0"),
    ],
)
def test_only_whole_addresses_ports_and_folders_are_translated(word, expected):
    service = replace(ONE, environment={"X": word})
    assert translate(service, BOTH, PLACES).environment == {"X": expected}


def test_a_service_s_name_is_a_host_as_an_argument_but_not_as_the_program():
    service = replace(ONE, command=("two", "--host", "two", "x-two"))
    assert translate(service, BOTH, PLACES).command == ("two", "--host", HOST, "x-two")


def test_a_port_that_its_service_does_not_expose_is_an_error():
    service = replace(ONE, environment={"X": "two:5433"})
    with pytest.raises(ComposeError, match="one calls two:5433, which is not in its expose"):
        translate(service, BOTH, PLACES)


@given(st.text(alphabet=st.characters(exclude_characters="0123456789/"), max_size=40))
def test_text_without_a_port_or_a_folder_stays_as_it_is(text):
    assume("0.0.0.0" not in text)
    service = replace(ONE, environment={"X": text})
    assert translate(service, BOTH, PLACES) == service


def test_ports_are_different_and_a_published_one_is_kept():
    services = [ONE, replace(TWO, published={5432: 15432})]
    ports = ports_of(services)
    assert ports["two", 5432] == 15432
    assert len(set(ports.values())) == 3
    assert len(set(free_ports(50))) == 50
