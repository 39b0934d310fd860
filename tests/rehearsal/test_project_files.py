"""The project's own compose file and Dockerfile are ones that the rehearsal can follow."""

from tests.rehearsal.cluster import COMPOSE, DOCKERFILE, IMAGE_PROJECT, IMAGE_VENV
from tests.rehearsal.compose_file import load_compose
from tests.rehearsal.image import read_dockerfile
from tests.rehearsal.not_rehearsed import NOT_REHEARSED, OBEYED, unknown_keys
from tests.rehearsal.start_order import start_levels


def test_every_key_of_the_compose_file_is_obeyed_or_named_as_not_rehearsed():
    assert unknown_keys(load_compose(COMPOSE)["services"]) == []
    assert not OBEYED & NOT_REHEARSED.keys()


def test_a_key_in_neither_table_is_found():
    described = {
        "web": {
            "command": [],
            "mem_limit": "1g",
            "gpus": "all",
            "healthcheck": {"test": [], "until": 1},
            "depends_on": {"db": {"condition": "service_started", "restart": True}},
        }
    }
    expected = ["web: depends_on.*.restart", "web: gpus", "web: healthcheck.until"]
    assert unknown_keys(described) == expected


def test_the_order_of_the_project_s_services_can_be_kept(project_services):
    levels = start_levels(project_services)
    started = [name for level in levels for name in level]
    assert sorted(started) == sorted(project_services)
    assert started.index("postgres") < started.index("airflow-init")


def test_the_image_s_environment_is_that_of_its_last_stage(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(
        "FROM a AS one\nENV GONE=1\nFROM b\n# ENV NO=1\nENV PATH=/opt/venv/bin:$PATH \\\n"
        '    QUOTED="a b"\nENV NEXT=${QUOTED}/c\nWORKDIR /opt/x\nRUN true\n'
    )
    image = read_dockerfile(file)
    assert image.working_dir == "/opt/x"
    assert image.environment == {"PATH": "/opt/venv/bin:$PATH", "QUOTED": "a b", "NEXT": "a b/c"}


def test_the_project_s_image_works_in_the_folder_that_the_rehearsal_replaces():
    image = read_dockerfile(DOCKERFILE)
    assert image.working_dir == IMAGE_PROJECT
    assert image.environment["PATH"].startswith(f"{IMAGE_VENV}/bin:")
