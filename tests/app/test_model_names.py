"""Model names: what each form means, and errors that name the right form."""

from pathlib import Path

import pytest

from octavo.errors import ModelFolderError, ModelMissingError, ModelNameError
from octavo.models.manifest import FORMAT_VERSION, Manifest, write_manifest
from octavo.models.names import FolderName, GgufName, HubName, KnownName, canonical_name, parse_name
from octavo.models.resolve import list_models, remove, resolve, sha256_of
from octavo.paths import Paths


def put_model(folder: Path, manifest: Manifest | None = None) -> Path:
    folder.mkdir(parents=True)
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / file).write_text("{}")
    if manifest:
        write_manifest(folder, manifest)
    return folder


def test_each_form_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_name("smollm2-135m") == KnownName("smollm2-135m")
    assert parse_name("hf:org/repo-1.5") == HubName("org/repo-1.5")
    assert parse_name("./model") == FolderName(tmp_path / "model")
    assert parse_name("weights.gguf") == GgufName(tmp_path / "weights.gguf")


def test_a_path_means_the_same_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical_name("./model") == str(tmp_path / "model")
    assert canonical_name("hf:org/repo") == "hf:org/repo"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smollm2-130m", 'Did you mean "smollm2-135m"?'),
        ("gpt", "Known: smollm2-135m; or hf:ORG/REPO"),
        ("hf:repo", "Write hf:ORG/REPO"),
        ("hf:../repo", "Write hf:ORG/REPO"),
        ("", "Known: smollm2-135m"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(name: str, hint: str) -> None:
    with pytest.raises(ModelNameError) as caught:
        parse_name(name)
    assert hint in str(caught.value)


def test_a_missing_model_says_how_to_fetch_it(paths: Paths) -> None:
    with pytest.raises(ModelMissingError, match="octavo models pull smollm2-135m"):
        resolve("smollm2-135m", paths)


def test_a_folder_is_used_in_place(paths: Paths, tmp_path: Path) -> None:
    folder = put_model(tmp_path / "mine")
    assert resolve(str(folder), paths) == folder
    assert list_models(paths) == []


def test_a_folder_that_lacks_parts_is_refused_with_their_names(paths: Paths, tmp_path: Path) -> None:
    folder = put_model(tmp_path / "mine")
    (folder / "model.safetensors").unlink()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFolderError, match=r"lacks weights \(\*\.safetensors\) and a tokenizer"):
        resolve(str(folder), paths)


def test_a_folder_of_the_user_is_never_removed(paths: Paths, tmp_path: Path) -> None:
    folder = put_model(tmp_path / "mine")
    with pytest.raises(ModelFolderError, match="yours"):
        remove(str(folder), paths)
    assert folder.exists()


def test_pulled_models_are_listed_by_name_and_removed(paths: Paths) -> None:
    for name, folder in (("smollm2-135m", "smollm2-135m"), ("hf:a/b", "hf--a--b")):
        put_model(paths.models_dir / folder, Manifest(name=name, source="test"))
    assert [manifest.name for manifest, _ in list_models(paths)] == ["hf:a/b", "smollm2-135m"]
    remove("hf:a/b", paths)
    assert [path.name for path in paths.models_dir.iterdir()] == ["smollm2-135m"]
    with pytest.raises(ModelMissingError):
        remove("hf:a/b", paths)


def test_a_folder_without_manifest_or_of_another_format_counts_as_missing(paths: Paths) -> None:
    put_model(paths.models_dir / "smollm2-135m")
    with pytest.raises(ModelMissingError):
        resolve("smollm2-135m", paths)
    manifest = Manifest(name="smollm2-135m", source="test", format_version=FORMAT_VERSION + 1)
    write_manifest(paths.models_dir / "smollm2-135m", manifest)
    with pytest.raises(ModelMissingError):
        resolve("smollm2-135m", paths)


def test_a_gguf_file_is_found_by_its_content(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_text("weights")
    folder = put_model(paths.models_dir / "a", Manifest(name="elsewhere", source="", sha256=sha256_of(file)))
    assert resolve(str(file), paths) == folder
    file.write_text("other weights")
    with pytest.raises(ModelMissingError):
        resolve(str(file), paths)


def test_a_gguf_file_that_is_not_there_is_named(paths: Paths) -> None:
    with pytest.raises(ModelFolderError, match=r"/no/where\.gguf is no file"):
        resolve("/no/where.gguf", paths)
