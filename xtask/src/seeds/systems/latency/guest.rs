//! The drills in the guest: one script that starts the services and prints the results between marks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::paths;
use crate::seeds::drill::Outcome;
use crate::seeds::process::binary;
use crate::seeds::scene::Scene;
use crate::vm::{self, Bring, Ending, Job};

/// What the guest found.
pub(super) struct Found {
    pub(super) kernel: String,
    pub(super) hasty: Outcome,
    pub(super) patient: Outcome,
}

const KERNEL: &str = "6.1";

/// One service before its own store; the phases are longer than on a real processor, which needs a tenth of the time for everything.
const SCRIPT: &str = "ip link set lo up
export STORMDRILL_STATE_DIR=/state
service() {
  /lab store --listen 127.0.0.1:$2 >/dev/null 2>&1 &
  /lab chain --layers 1 --ports $1 --downstream 127.0.0.1:$2 $3 >/dev/null 2>&1 &
}
service 18080 18090 '--tries 3 --timeout 100ms'
service 18081 18091 '--policy budgeted --tries 3 --budget 10% --timeout 1s'
sleep 3
drill() {
  # Before the drill, so that the first window of the baseline is as full as the last.
  /lab load --url http://127.0.0.1:$2/orders --rate 15/s --duration 600s --timeout 5s --unique-path on >/dev/null 2>&1 &
  load=$!
  # Again if the emulated machine held it up.
  for time in 1 2 3; do
    /sd run /latency.yaml --json /$1.json --set observe.ingress.web.port=$2 --set observe.downstream.store.port=$3 --set observe.window=2s \\
      --set phases.baseline=20s --set phases.fault=24s --set phases.recovery=16s >/dev/null 2>/$1.err
    [ $? = 3 ] || break
  done
  kill $load
  echo \"<<$1\"; cat /$1.json || cat /$1.err; echo \">>$1\"
}
drill hasty 18080 18090
drill patient 18081 18091
exit 0
";

/// Downloads the kernel, unless that was done before.
pub(crate) fn prepare() -> Result<()> {
    vm::kernel_of_version(KERNEL, false).map(drop)
}

/// Boots the kernel and runs all of it.
pub(super) fn run(scene: &Scene) -> Result<Found> {
    let latency = paths::workspace().join("playbooks/latency.yaml");
    let said = boot(scene, "guest", SCRIPT, vec![at(latency, "/latency.yaml")], 1024)?;
    let outcome = |name: &str| said.outcome(name, "playbooks/latency.yaml");
    Ok(Found { kernel: said.kernel.clone(), hasty: outcome("hasty")?, patient: outcome("patient")? })
}

/// What a guest printed.
pub(super) struct Said {
    pub(super) kernel: String,
    text: String,
}

impl Said {
    /// A result that was printed between marks.
    pub(super) fn outcome(&self, name: &str, playbook: &str) -> Result<Outcome> {
        let (begin, end) = (format!("<<{name}"), format!(">>{name}"));
        let between = self.text.split(&begin).nth(1).and_then(|rest| rest.split(&end).next());
        Outcome::parse(between.with_context(|| format!("the guest printed no {name}"))?, playbook)
    }
}

pub(super) fn at(host: PathBuf, guest: &str) -> Bring {
    Bring { host, guest: guest.to_owned() }
}

/// Boots the kernel and runs a script there, with the product as `/sd` and the lab as `/lab`.
pub(super) fn boot(scene: &Scene, name: &str, script: &str, bring: Vec<Bring>, memory: u64) -> Result<Said> {
    let kernel = vm::kernel_of_version(KERNEL, false)?;
    let script = scene.write(&format!("{name}.sh"), script)?;
    let own = [at(binary("stormdrill"), "/sd"), at(binary("stormdrill-lab"), "/lab"), at(script, "/go.sh")];
    let job = Job {
        command: vec!["sh".into(), "/go.sh".into()],
        bring: own.into_iter().chain(bring).collect(),
        memory,
        timeout: Duration::from_secs(1200),
        ..Job::default()
    };
    let mut output = Vec::new();
    let ending = vm::boot(&kernel, &job, &mut |bytes| output.extend_from_slice(bytes))?;
    let text = String::from_utf8_lossy(&output).replace('\r', "");
    let log = scene.write(&format!("{name}.log"), &text)?;
    if ending != Ending::Exited(0) {
        bail!("the guest did not end well; {} has what it said", log.display());
    }
    Ok(Said { kernel: kernel.release.clone(), text })
}
