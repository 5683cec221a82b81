"""How the client finds a service: by its arguments, the environment, or what a service left in a directory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlrm
from service.client import ServiceUnknownError, find_connection
from service.client.connection import ReadyFile, get_ready_file_path, save_admin_key


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DLRM_URL", "DLRM_API_KEY", "DLRM_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def write_ready_file(state_directory: Path, admin_key: str | None = "dlrm_saved") -> None:
    """Write the ready file as a service does at its start."""
    state_directory.mkdir(exist_ok=True)
    content = {"url": "http://127.0.0.1:1", "admin_key": admin_key, "signin_link": "http://127.0.0.1:1/signin#token=a"}
    get_ready_file_path(state_directory).write_text(json.dumps(content))


def test_arguments_come_before_the_environment_and_the_environment_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ready_file(tmp_path / ".dlrm")
    assert find_connection().url == "http://127.0.0.1:1"
    monkeypatch.setenv("DLRM_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_environment")
    assert find_connection().url == "http://127.0.0.1:2"
    given = find_connection("http://127.0.0.1:3/", "dlrm_given")
    assert (given.url, given.api_key) == ("http://127.0.0.1:3", "dlrm_given")


def test_the_nearest_state_directory_above_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_ready_file(tmp_path / ".dlrm")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_connection().api_key == "dlrm_saved"


def test_a_key_left_by_one_service_is_not_sent_to_another_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ready_file(tmp_path / ".dlrm")
    monkeypatch.setenv("DLRM_URL", "http://elsewhere.example:80")
    with pytest.raises(ServiceUnknownError, match="DLRM_API_KEY"):
        find_connection()


def test_without_any_service_the_message_says_how_to_get_one() -> None:
    with pytest.raises(ServiceUnknownError, match="dlrm serve"):
        find_connection()


def test_the_key_of_the_first_start_outlives_a_second_start(tmp_path: Path) -> None:
    state_directory = tmp_path / ".dlrm"
    write_ready_file(state_directory)
    save_admin_key(state_directory)
    write_ready_file(state_directory, admin_key=None)
    assert find_connection().api_key == "dlrm_saved"
    save_admin_key(state_directory)
    assert find_connection().api_key == "dlrm_saved"
    assert (state_directory / "admin-key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:1/", "HTTP://127.0.0.1:1"])
def test_the_environment_may_name_the_service_whose_key_was_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    write_ready_file(tmp_path / ".dlrm")
    monkeypatch.setenv("DLRM_URL", url)
    assert find_connection().api_key == "dlrm_saved"


@pytest.mark.parametrize(
    "url",
    ["foo", "localhost:8080", "ftp://localhost", "http://", "http://host:99999", "http://a b", f"http://{70 * 'a'}"],
)
def test_what_is_no_url_is_said_with_an_example(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DLRM_URL", url)
    message = re.escape(f"DLRM_URL: {url!r} is not a URL (valid: http://host:port)")
    with pytest.raises(ServiceUnknownError, match=message):
        find_connection()


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", " "])
def test_a_key_is_used_without_the_white_space_around_it_wherever_it_is_read(
    end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ready_file(tmp_path / ".dlrm", f"dlrm_saved{end}")
    assert find_connection().api_key == "dlrm_saved"
    assert find_connection(api_key=f"dlrm_given{end}").api_key == "dlrm_given"
    monkeypatch.setenv("DLRM_API_KEY", f"dlrm_environment{end}")
    assert find_connection().api_key == "dlrm_environment"


@pytest.mark.parametrize("key", ["dlrm_secret\nx", "dlrm_sécret", "dlrm_ secret", "dlrm_secret\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ready_file(tmp_path / ".dlrm", key)
    with pytest.raises(ServiceUnknownError, match=r"^the saved API key: has a character that no API key has") as saved:
        find_connection()
    monkeypatch.setenv("DLRM_API_KEY", key)
    with pytest.raises(ServiceUnknownError, match=r"^DLRM_API_KEY: has a character that no API key has") as refused:
        find_connection()
    assert "cret" not in str(saved.value) + str(refused.value)


@pytest.mark.parametrize("value", ["", " \n"])
@pytest.mark.parametrize("variable", ["DLRM_API_KEY", "DLRM_URL"])
def test_a_variable_that_is_empty_does_not_become_what_is_saved(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ready_file(tmp_path / ".dlrm")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ServiceUnknownError, match=f"{variable}: is empty; set it, or unset {variable}"):
        find_connection()
    with pytest.raises(ServiceUnknownError, match="is empty; omit it"):
        find_connection("", "")


@pytest.mark.parametrize("url", ["dlrm_secret", "http//ann:dlrm@host", "ftp://ann:pass@host"])
def test_a_key_or_password_in_place_of_the_url_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_URL", url)
    with pytest.raises(ServiceUnknownError, match=r"^DLRM_URL: this is not a URL \(valid: http://host:port\)$"):
        find_connection()


def test_a_connection_is_shown_without_its_key(tmp_path: Path) -> None:
    write_ready_file(tmp_path / ".dlrm")
    assert "dlrm_saved" not in repr(find_connection())
    assert "dlrm_saved" not in repr(ReadyFile.read(get_ready_file_path(tmp_path / ".dlrm")))


def test_users_import_the_client_from_the_package_of_the_trainer_which_loads_it_then_alone() -> None:
    program = "import sys, dlrm; print('service' in sys.modules, dlrm.Client.__module__, 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert shown.split() == ["False", "service.client.client", "False"]
    with pytest.raises(AttributeError, match="'dlrm' has no attribute 'Clientt'"):
        dlrm.__getattr__("Clientt")
