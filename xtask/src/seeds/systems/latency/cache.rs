//! Redis that answers 200 ms later, by netem: the shipped playbook `redis-cascade` as it is, with Redis, MariaDB and their Python clients in the guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::guest::{self, KERNEL};
use crate::seeds::drill::Outcome;
use crate::seeds::process::binary;
use crate::seeds::result::{Section, Verdict};
use crate::seeds::rig;
use crate::seeds::scene::Scene;
use crate::vm::{self, Bring, Job};
use crate::{command, paths};

/// Kind of the service, its port, what is drilled, and the verdict that it deserves.
const DRILLS: [(&str, &str, &str); 3] = [
    ("storm", "redis-cascade: Redis slower by 200 ms, storm", "fail"),
    ("guarded", "redis-cascade: the same, guarded", "pass"),
    ("patient", "redis-cascade: the same, guarded, with a timeout of 1 s", "pass"),
];

/// MariaDB without an account and without InnoDB needs no files to begin with. What fills Redis also waits for everything to listen.
const SCRIPT: &str = "ip link set lo up
export STORMDRILL_STATE_DIR=/state PYTHONPATH=/site PYTHONDONTWRITEBYTECODE=1
/usr/bin/redis-server --port 6379 --bind 127.0.0.1 --save '' --appendonly no --dir /tmp >/dev/null 2>&1 &
mkdir /data
/usr/sbin/mariadbd --no-defaults --user=root --skip-grant-tables --skip-innodb --default-storage-engine=Aria --datadir=/data --port=3306 \\
  --bind-address=127.0.0.1 --skip-name-resolve --socket=/tmp/mysql.sock --max-connections=10 >/dev/null 2>&1 &
drill() {
  python3 /service.py $2 6379 3306 $1 >/dev/null 2>/$1.err &
  service=$!
  python3 /fill.py 6379 3306 $2 || exit 1
  # Before the drill, so that the first window of the baseline is as full as the last.
  /lab load --url http://127.0.0.1:$2/orders --rate 12/s --duration 300s --timeout 5s --unique-path on >/dev/null 2>&1 &
  load=$!
  /sd run /cascade.yaml --json /$1.json --set observe.ingress.web.port=$2 --set observe.window=2s \\
    --set phases.baseline=14s --set phases.fault=20s --set phases.recovery=8s >/dev/null 2>>/$1.err
  kill $load $service
  echo \"<<$1\"; cat /$1.json || cat /$1.err; echo \">>$1\"
}
";

const FILL: &str = "import socket, sys, time
for port in map(int, sys.argv[1:]):
    end = time.time() + 180
    while True:
        try:
            socket.create_connection(('127.0.0.1', port), 1).close()
            break
        except OSError:
            if time.time() > end:
                sys.exit(f'nothing listens at {port}')
            time.sleep(0.2)
redis = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
redis.sendall(b''.join(b'SET item:%d value\\r\\n' % number for number in range(100)))
answers = b''
while answers.count(b'+OK') < 100:
    answers += redis.recv(4096)
";

/// Boots the guest, and adds what came of it.
pub(super) fn run(scene: &Scene, section: &mut Section) -> Result<()> {
    let kernel = vm::kernel_of_version(KERNEL, false)?;
    let mut script = SCRIPT.to_owned();
    for (number, (kind, ..)) in DRILLS.iter().enumerate() {
        script.push_str(&format!("drill {kind} {}\n", 18080 + number));
    }
    script.push_str("exit 0\n");
    let bring = [
        (binary("stormdrill"), "/sd"),
        (binary("stormdrill-lab"), "/lab"),
        (paths::workspace().join("playbooks/redis-cascade.yaml"), "/cascade.yaml"),
        (command::require("redis-server")?, "/usr/bin/redis-server"),
        (command::require("mariadbd")?, "/usr/sbin/mariadbd"),
        (PathBuf::from("/usr/bin/python3"), "/usr/bin/python3"),
        (scene.write("service.py", include_str!("../cascade/service.py"))?, "/service.py"),
        (scene.write("fill.py", FILL)?, "/fill.py"),
        (scene.write("cache.sh", &script)?, "/go.sh"),
    ];
    let mut bring: Vec<Bring> = bring.map(|(host, guest)| Bring { host, guest: guest.to_owned() }).into();
    bring.extend(python(scene)?);
    let job =
        Job { command: vec!["sh".into(), "/go.sh".into()], bring, memory: 1024, timeout: Duration::from_secs(1200), ..Job::default() };
    let text = guest::boot(scene, &kernel, &job, "cache")?;
    let mut outcomes = Vec::new();
    for (kind, what, expected) in DRILLS {
        let outcome = guest::outcome(&text, kind, "playbooks/redis-cascade.yaml")?;
        section.drills.push(outcome.drill(what, expected));
        outcomes.push(outcome);
    }
    findings(&outcomes, section)
}

fn findings(outcomes: &[Outcome], section: &mut Section) -> Result<()> {
    let [storm, guarded, patient] = outcomes else { return Ok(()) };
    let asked = storm.requests("web", "fault")?.max(1) as f64;
    let tries = (storm.requests("cache", "fault")? + storm.unconnected("cache", "fault")?) as f64 / asked;
    let share = |outcome: &Outcome| outcome.number("database", "fault", "/qps");
    section.find(
        "D2",
        Verdict::of_two(tries > 1.5, tries > 3.5),
        format!(
            "Redis delayed by 200 ms by netem, with a timeout of 100 ms and three retries: {tries:.2} commands or connections that came to nothing a request; MySQL \
             gets {:.1} statements a second, and {:.1} of the guarded service",
            share(storm)?,
            share(guarded)?
        ),
    );
    let median = |phase: &str| patient.number("cache", phase, "/latency_ms/p50");
    let (before, during) = (median("baseline")?, median("fault")?);
    section.find(
        "D1",
        Verdict::of(during > 180.0 && before < 60.0),
        format!("Redis delayed by 200 ms by netem, for a client that waits: from {before:.1} to {during:.0} ms in the median"),
    );
    let cascades = storm.cascades();
    if !cascades.contains(&("cache".to_owned(), "database".to_owned())) {
        section.wrong.push(format!("the storm is a cascade from the cache to the database, and the report finds {cascades:?}"));
    }
    Ok(())
}

/// Python's library and the clients, compiled: an emulated processor would take minutes for it.
fn python(scene: &Scene) -> Result<Vec<Bring>> {
    let interpreter = rig::environment().join("bin/python3");
    let script = "import sys, sysconfig; print(sysconfig.get_path('stdlib')); print(sysconfig.get_path('purelib'))";
    let folders = command::capture(Command::new(&interpreter).args(["-c", script]))?;
    let mut folders = folders.lines().map(Path::new);
    let (library, site) = (folders.next().context("no library of Python")?, folders.next().context("no place of Python's packages")?);
    let staged = scene.folder.join("python");
    let _ = std::fs::remove_dir_all(&staged);
    std::fs::create_dir_all(&staged).with_context(|| format!("cannot make {}", staged.display()))?;
    command::run(Command::new("cp").arg("-rL").arg(library).arg(staged.join("library")))?;
    for package in ["redis", "pymysql"] {
        command::run(Command::new("cp").arg("-rL").arg(site.join(package)).arg(&staged))?;
    }
    for package in ["typing_extensions.py", "async_timeout"].map(|name| site.join(name)).iter().filter(|path| path.exists()) {
        command::run(Command::new("cp").arg("-rL").arg(package).arg(&staged))?;
    }
    // By content and not by date, which the guest's files have not.
    command::run(Command::new(&interpreter).args(["-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]).arg(&staged))?;
    let library_there = library.display().to_string();
    let mut bring = vec![Bring { host: staged.join("library"), guest: library_there }];
    for entry in std::fs::read_dir(&staged).with_context(|| format!("cannot read {}", staged.display()))? {
        let entry = entry.context("cannot read the staged packages")?;
        if entry.file_name() != "library" {
            bring.push(Bring { host: entry.path(), guest: format!("/site/{}", entry.file_name().to_string_lossy()) });
        }
    }
    Ok(bring)
}
