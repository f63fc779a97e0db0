//! Which kernel modules go into the guest, and in what order they are loaded: from modules.dep, as modprobe would.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// What a drill and its tests use: packet faults, the devices that a fault must live with, classifiers, and the dump of sockets.
const WANTED: &[&str] = &[
    "sch_netem",
    "sch_ingress",
    "sch_tbf",
    "sch_htb",
    "sch_prio",
    "sch_fq",
    "sch_fq_codel",
    "sch_sfq",
    "sch_cake",
    "sch_multiq",
    "cls_bpf",
    "cls_u32",
    "cls_matchall",
    "cls_flower",
    "act_mirred",
    "act_gact",
    "act_bpf",
    "ifb",
    "veth",
    "dummy",
    "bonding",
    "8021q",
    "bridge",
    "macvlan",
    "ipvlan",
    "vxlan",
    "tun",
    "tcp_diag",
    "udp_diag",
    "inet_diag",
    "unix_diag",
];

/// Devices that a module would make on its own when it is loaded; a test that compares lists of links must not find them.
const PARAMETERS: [(&str, &str); 3] = [("ifb", "numifbs=0"), ("dummy", "numdummies=0"), ("bonding", "max_bonds=0")];

/// The modules for one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modules {
    /// Paths below the modules' folder, each after those that it needs.
    pub(super) ordered: Vec<String>,
    /// Wanted, but neither a file nor built into the kernel.
    pub(super) absent: Vec<String>,
    /// The lines of modules.dep for just these files, with the names that they have when unpacked.
    pub(super) dep: String,
    /// As `dep`, of modules.alias.
    pub(super) alias: String,
}

/// Chooses the modules from a folder with modules.dep. `extra` are wanted too; `without` are left out, as if the kernel had none.
pub(super) fn choose(folder: &Path, extra: &[String], without: &[String]) -> Result<Modules> {
    let read = |name: &str| fs::read_to_string(folder.join(name));
    let dep = read("modules.dep").with_context(|| format!("cannot read modules.dep in {}", folder.display()))?;
    let builtin = read("modules.builtin").unwrap_or_default();
    let wanted = WANTED.iter().copied().chain(extra.iter().map(String::as_str));
    Ok(select(&dep, &builtin, &read("modules.alias").unwrap_or_default(), wanted, without))
}

fn select<'a>(dep: &str, builtin: &str, alias: &str, wanted: impl Iterator<Item = &'a str>, without: &[String]) -> Modules {
    let without: BTreeSet<String> = without.iter().map(|name| normal(name)).collect();
    let mut files = BTreeMap::new();
    for line in dep.lines() {
        if let Some((file, needs)) = line.split_once(':') {
            files.insert(name_of(file), (file.trim(), needs.split_whitespace().collect::<Vec<_>>()));
        }
    }
    let builtin: BTreeSet<String> = builtin.lines().map(name_of).collect();
    let mut modules = Modules::default();
    let mut taken = BTreeSet::new();
    for name in wanted.map(normal) {
        if without.contains(&name) {
            continue;
        }
        match files.get(&name) {
            Some((file, needs)) => {
                // modules.dep lists all that a module needs, the deepest last.
                for path in needs.iter().rev().chain([file]) {
                    if taken.insert(name_of(path)) {
                        modules.ordered.push((*path).to_owned());
                    }
                }
            }
            None if !builtin.contains(&name) => modules.absent.push(name),
            None => {}
        }
    }
    for path in &modules.ordered {
        if let Some((_, needs)) = files.get(&name_of(path)) {
            let needs = needs.iter().map(|need| unpacked_name(need)).collect::<Vec<_>>().join(" ");
            modules.dep.push_str(&format!("{}: {needs}\n", unpacked_name(path)));
        }
    }
    for line in alias.lines() {
        if line.split_whitespace().next_back().is_some_and(|module| taken.contains(&normal(module))) {
            modules.alias.push_str(line);
            modules.alias.push('\n');
        }
    }
    modules
}

/// What a module is loaded with.
pub(super) fn parameters(path: &str) -> &'static str {
    let name = name_of(path);
    PARAMETERS.iter().find(|(module, _)| *module == name).map_or("", |(_, parameters)| parameters)
}

/// A module's path without what compressed it: busybox's insmod takes plain files only.
pub(super) fn unpacked_name(path: &str) -> &str {
    path.strip_suffix(".xz").or_else(|| path.strip_suffix(".zst")).or_else(|| path.strip_suffix(".gz")).unwrap_or(path)
}

/// A module's name: its file's, with the one spelling that the kernel uses for `-` and `_`.
fn name_of(path: &str) -> String {
    let file = path.trim().rsplit('/').next().unwrap_or(path);
    normal(unpacked_name(file).trim_end_matches(".ko"))
}

fn normal(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz kernel/net/llc/llc.ko.xz\n\
                       kernel/net/802/stp.ko.xz: kernel/net/llc/llc.ko.xz\n\
                       kernel/net/llc/llc.ko.xz:\n\
                       kernel/net/sched/sch_netem.ko.xz:\n\
                       kernel/net/sched/sch-odd.ko:\n";

    fn select_from_dep(wanted: &[&str], without: &[&str]) -> Modules {
        let without: Vec<String> = without.iter().map(|name| (*name).to_owned()).collect();
        let alias = "# comment\nalias rtnl-link-bridge bridge\nalias tcp_cubic cubic\n";
        select(DEP, "kernel/net/sched/sch_fq.ko\n", alias, wanted.iter().copied(), &without)
    }

    #[test]
    fn a_module_comes_after_all_that_it_needs_and_once() {
        let modules = select_from_dep(&["bridge", "stp", "sch_netem"], &[]);
        assert_eq!(
            modules.ordered,
            ["kernel/net/llc/llc.ko.xz", "kernel/net/802/stp.ko.xz", "kernel/net/bridge/bridge.ko.xz", "kernel/net/sched/sch_netem.ko.xz"]
        );
        assert!(modules.absent.is_empty());
    }

    #[test]
    fn what_is_built_in_is_not_absent_and_what_is_nowhere_is() {
        let modules = select_from_dep(&["sch_fq", "sch_nowhere"], &[]);
        assert!(modules.ordered.is_empty());
        assert_eq!(modules.absent, ["sch_nowhere"]);
    }

    #[test]
    fn dashes_and_underscores_are_one() {
        assert_eq!(select_from_dep(&["sch_odd"], &[]).ordered, ["kernel/net/sched/sch-odd.ko"]);
    }

    #[test]
    fn a_module_can_be_left_out() {
        let modules = select_from_dep(&["sch_netem", "llc"], &["sch_netem"]);
        assert_eq!(modules.ordered, ["kernel/net/llc/llc.ko.xz"]);
        assert!(modules.absent.is_empty());
    }

    #[test]
    fn the_guests_tables_name_unpacked_files_and_only_its_own() {
        let modules = select_from_dep(&["bridge"], &[]);
        assert!(modules.dep.contains("kernel/net/802/stp.ko: kernel/net/llc/llc.ko\n"), "{}", modules.dep);
        assert!(!modules.dep.contains("netem"), "{}", modules.dep);
        assert_eq!(modules.alias, "alias rtnl-link-bridge bridge\n");
    }

    #[test]
    fn devices_that_modules_make_on_their_own_are_not_made() {
        assert_eq!(parameters("kernel/drivers/net/ifb.ko.xz"), "numifbs=0");
        assert_eq!(parameters("kernel/net/sched/sch_netem.ko"), "");
    }
}
