//! Builds the kernel objects into `target/bpf`, each with the hash of the sources that it was made from.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::route::{self, Choice, Route, TARGET};
use crate::setup::{self, Linker};
use crate::{command, objects, paths, say};

/// Builds the kernel objects if one is missing or older than its sources, or if the route is named: then that route is to be seen at work.
pub(crate) fn ensure_fresh(route: Option<Choice>) -> Result<()> {
    let workspace = paths::workspace();
    let hash = objects::source_hash(&workspace).context("cannot read the kernel sources")?;
    let names = names()?;
    if route.is_none() && names.iter().all(|name| is_fresh(&paths::bpf(), name, &hash)) {
        return Ok(());
    }
    let (route, linker) = toolchain(route)?;
    say::step(format!("building the kernel objects {} with {}", names.join(", "), route.describe()));
    let target = target_dir();
    let mut cargo = route.cargo("build", &linker.path, &target);
    command::run(cargo.current_dir(workspace.join("ebpf"))).context("the kernel objects do not build")?;
    for name in &names {
        place(&target.join(TARGET).join("release").join(name), &paths::bpf(), name, &hash)?;
    }
    Ok(())
}

/// The toolchain that is installed, or an error of one line that says what to run.
pub(crate) fn toolchain(route: Option<Choice>) -> Result<(Route, Linker)> {
    let linker = setup::installed_linker().context("bpf-linker is not installed: run `cargo xtask setup`")?;
    let route = route::find(route, linker.llvm).map_err(|refusals| anyhow::anyhow!(setup::explain(&refusals)))?;
    Ok((route, linker))
}

/// Apart from the workspace's own, since two compilers would throw out each other's work.
pub(crate) fn target_dir() -> std::path::PathBuf {
    paths::workspace().join("target/ebpf")
}

fn names() -> Result<Vec<String>> {
    let manifest = paths::workspace().join("ebpf/Cargo.toml");
    let names = objects::names(&fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?);
    ensure!(!names.is_empty(), "{} declares no [[bin]]", manifest.display());
    Ok(names)
}

fn is_fresh(folder: &Path, name: &str, hash: &str) -> bool {
    folder.join(format!("{name}.o")).is_file()
        && fs::read_to_string(folder.join(format!("{name}.src-hash"))).is_ok_and(|recorded| recorded.trim() == hash)
}

/// Copies one object to its place. The record is written last: a half-made pair counts as missing.
fn place(built: &Path, folder: &Path, name: &str, hash: &str) -> Result<()> {
    let object = fs::read(built).with_context(|| format!("cannot read {}", built.display()))?;
    ensure!(is_bpf_object(&object), "{} is no BPF object: did the linker run?", built.display());
    fs::create_dir_all(folder)?;
    let record = folder.join(format!("{name}.src-hash"));
    let _ = fs::remove_file(&record);
    fs::write(folder.join(format!("{name}.o")), &object)?;
    fs::write(&record, format!("{hash}\n"))?;
    say::step(format!("{name}.o: {} bytes", object.len()));
    Ok(())
}

/// Whether bytes begin as an ELF file for the machine BPF (`EM_BPF`, 247) does.
fn is_bpf_object(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") && bytes.get(18..20).is_some_and(|machine| machine == 247_u16.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_an_elf_file_for_bpf_is_a_kernel_object() {
        assert!(is_bpf_object(&elf(247)));
        assert!(!is_bpf_object(&elf(62)));
        assert!(!is_bpf_object(b"\x7fELF"));
        assert!(!is_bpf_object(&[]));
    }

    #[test]
    fn an_object_is_fresh_only_with_the_hash_of_the_present_sources() {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("built");
        fs::write(&built, elf(247)).unwrap();
        assert!(!is_fresh(folder.path(), "probe", "aa"));
        place(&built, folder.path(), "probe", "aa").unwrap();
        assert!(is_fresh(folder.path(), "probe", "aa"));
        assert!(!is_fresh(folder.path(), "probe", "bb"));
        fs::remove_file(folder.path().join("probe.o")).unwrap();
        assert!(!is_fresh(folder.path(), "probe", "aa"));
    }

    #[test]
    fn the_hash_changes_with_a_sources_content_and_name_and_not_with_other_files() {
        let tree = tempfile::tempdir().unwrap();
        let source = tree.path().join("ebpf/src");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("a.rs"), "one").unwrap();
        let first = objects::source_hash(tree.path()).unwrap();
        fs::create_dir_all(tree.path().join("ebpf/target")).unwrap();
        fs::write(tree.path().join("ebpf/target/x"), "built").unwrap();
        assert_eq!(objects::source_hash(tree.path()).unwrap(), first);
        fs::write(source.join("a.rs"), "two").unwrap();
        let second = objects::source_hash(tree.path()).unwrap();
        assert_ne!(second, first);
        fs::rename(source.join("a.rs"), source.join("b.rs")).unwrap();
        assert_ne!(objects::source_hash(tree.path()).unwrap(), second);
    }

    #[test]
    fn the_objects_are_the_bins_of_the_manifest() {
        let manifest = "[package]\nname = \"kernel\"\n[[bin]]\nname = \"probe\"\npath = \"p.rs\"\n\n[[bin]]\n name=\"fault\"\n[profile.release]\nname = \"no\"\n";
        assert_eq!(objects::names(manifest), ["probe", "fault"]);
        assert!(objects::names("[package]\nname = \"kernel\"\n").is_empty());
    }
}
