//! Test programs that need more than a plain `cargo test`: `privileged_*` root on this host, `vm_*` a kernel of their own.
//!
//! Their features keep a plain `cargo test` from building them, so that it neither fails for want of root nor passes by skipping.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{command, paths, say};

/// Where a test program has to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// As root on this host.
    Host,
    /// In the VM.
    Vm,
}

/// A test program that has been built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// The folder of its package, in which cargo would run it.
    pub(super) package: PathBuf,
}

impl Place {
    fn of(name: &str) -> Option<(Self, &'static str)> {
        if name.starts_with("privileged_") {
            Some((Self::Host, "privileged-tests"))
        } else if name.starts_with("vm_") {
            Some((Self::Vm, "vm-tests"))
        } else {
            None
        }
    }
}

/// Builds all such programs of the workspace.
pub(super) fn build() -> Result<Vec<Target>> {
    let metadata =
        command::capture(command::cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(paths::workspace()))?;
    let mut targets = Vec::new();
    for declared in declared(&serde_json::from_str(&metadata)?)? {
        let mut cargo = command::cargo();
        cargo.args(["test", "--no-run", "--message-format", "json-render-diagnostics", "--package", &declared.package]);
        cargo.arg("--features").arg(declared.features.join(",")).current_dir(paths::workspace()).env_remove("STORMDRILL_SKIP_BPF");
        for name in &declared.tests {
            cargo.args(["--test", name]);
        }
        say::step(format!("building the tests {}", declared.tests.join(", ")));
        cargo.stderr(std::process::Stdio::inherit());
        let messages = command::capture(&mut cargo).context("the tests do not build")?;
        let built = programs(&messages, &declared.folder)?;
        ensure!(built.len() == declared.tests.len(), "cargo built {} of {} test programs", built.len(), declared.tests.len());
        targets.extend(built);
    }
    Ok(targets)
}

/// A package's tests that need more.
#[derive(Debug, PartialEq, Eq)]
struct Declared {
    package: String,
    folder: PathBuf,
    tests: Vec<String>,
    features: Vec<&'static str>,
}

/// Finds them in what `cargo metadata` prints; one that a plain `cargo test` would build is an error.
fn declared(metadata: &Value) -> Result<Vec<Declared>> {
    let mut all = Vec::new();
    for package in list(metadata, "packages") {
        let mut tests = Vec::new();
        let mut features = Vec::new();
        for target in list(package, "targets").filter(|target| list(target, "kind").any(|kind| kind == "test")) {
            let name = text(target, "name")?;
            let Some((_, feature)) = Place::of(name) else { continue };
            if !list(target, "required-features").any(|required| required == feature) {
                bail!("the test {name} needs `required-features = [\"{feature}\"]` in its package's Cargo.toml");
            }
            tests.push(name.to_owned());
            if !features.contains(&feature) {
                features.push(feature);
            }
        }
        if !tests.is_empty() {
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let folder = manifest.parent().context("a manifest has no folder")?.to_path_buf();
            all.push(Declared { package: text(package, "name")?.to_owned(), folder, tests, features });
        }
    }
    Ok(all)
}

/// Finds the programs in cargo's messages, one JSON object a line.
fn programs(messages: &str, folder: &std::path::Path) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        let is_test = message["reason"] == "compiler-artifact" && list(&message["target"], "kind").any(|kind| kind == "test");
        if let (true, Some(program)) = (is_test, message["executable"].as_str()) {
            let name = text(&message["target"], "name")?;
            let Some((place, _)) = Place::of(name) else { continue };
            targets.push(Target { place, name: name.to_owned(), program: program.into(), package: folder.to_path_buf() });
        }
    }
    Ok(targets)
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo's answer lacks {key}"))
}

/// Puts those that take longest first, in the order of their names, so that nobody waits for one of them at the end.
pub(super) fn longest_first(targets: &mut [&Target], longest: &[&str]) {
    targets.sort_by_key(|target| longest.iter().position(|name| *name == target.name).unwrap_or(longest.len()));
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    fn metadata(required: &str) -> Value {
        serde_json::from_str(&format!(
            r#"{{"packages":[{{"name":"agent","manifest_path":"/w/agent/Cargo.toml","targets":[
                {{"kind":["lib"],"name":"agent"}},
                {{"kind":["test"],"name":"cli"}},
                {{"kind":["test"],"name":"vm_loss","required-features":["{required}"]}},
                {{"kind":["test"],"name":"privileged_probe","required-features":["privileged-tests"]}}]}}]}}"#
        ))
        .unwrap()
    }

    #[test]
    fn the_tests_that_need_more_are_found_by_name() {
        let found = declared(&metadata("vm-tests")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].tests, ["vm_loss", "privileged_probe"]);
        assert_eq!(found[0].features, ["vm-tests", "privileged-tests"]);
        assert_eq!(found[0].folder, PathBuf::from("/w/agent"));
    }

    #[test]
    fn one_that_a_plain_cargo_test_would_build_is_refused() {
        let text = declared(&metadata("other")).unwrap_err().to_string();
        assert!(text.contains("vm_loss") && text.contains("vm-tests"), "{text}");
    }

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"lib\"],\"name\":\"agent\"},\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"test\"],\"name\":\"vm_loss\"},\"executable\":\"/t/vm_loss-1\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        let found = programs(messages, std::path::Path::new("/w/agent")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].place, found[0].name.as_str()), (Place::Vm, "vm_loss"));
        assert_eq!(found[0].program, PathBuf::from("/t/vm_loss-1"));
    }
}
