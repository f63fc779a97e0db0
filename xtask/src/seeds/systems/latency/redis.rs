//! Redis behind a delay by netem, with its client and the database that gets what Redis does not answer in time.

use anyhow::Result;

use super::guest::{self, at};
use crate::paths;
use crate::seeds::drill::Outcome;
use crate::seeds::rig;
use crate::seeds::scene::Scene;
use crate::vm::servers;

/// What the guest found.
pub(super) struct Found {
    pub(super) storm: Outcome,
    pub(super) guarded: Outcome,
}

const PLAYBOOK: &str = "playbooks/redis-cascade.yaml";

/// The service of `cascade`, at a rate that an emulated processor can keep up with. The shipped playbook's fault is used as it stands.
const SCRIPT: &str = "ip link set lo up
export STORMDRILL_STATE_DIR=/state PYTHONPATH=PACKAGES PYTHONDONTWRITEBYTECODE=1
redis-server --port 6379 --bind 127.0.0.1 --save '' --dir /tmp >/dev/null 2>&1 &
mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal --skip-test-db --datadir=/tmp/mysql >/dev/null 2>&1
mariadbd --no-defaults --user=root --skip-grant-tables --datadir=/tmp/mysql --bind-address=127.0.0.1 --port=3306 --skip-name-resolve \\
  --socket=/tmp/mysql.sock --max-connections=10 >/dev/null 2>&1 &
n=0
while [ $n -lt 100 ]; do redis-cli SET item:$n value >/dev/null || sleep 1; n=$((n+1)); done
python3 /service.py 18080 6379 3306 storm >/dev/null 2>/storm.log &
python3 /service.py 18081 6379 3306 guarded >/dev/null 2>/guarded.log &
for port in 3306 18080 18081; do
  until python3 -c \"import socket; socket.create_connection(('127.0.0.1', $port), 1)\" 2>/dev/null; do sleep 1; done
done
drill() {
  /lab load --url http://127.0.0.1:$2/item --rate 15/s --duration 600s --timeout 5s --unique-path on >/dev/null 2>&1 &
  load=$!
  # Again if the emulated machine held it up.
  for time in 1 2 3; do
    /sd run /playbook.yaml --json /$1.json --set observe.ingress.web.port=$2 --set observe.window=2s \\
      --set phases.baseline=20s --set phases.fault=24s --set phases.recovery=16s >/dev/null 2>/$1.err
    [ $? = 3 ] || break
  done
  kill $load
  echo \"<<$1\"; cat /$1.json || cat /$1.err; echo \">>$1\"
}
drill storm 18080
drill guarded 18081
exit 0
";

/// Boots the kernel and runs both drills.
pub(super) fn run(scene: &Scene) -> Result<Found> {
    let (mut bring, packages) = servers::python(&rig::environment())?;
    bring.extend(servers::redis()?);
    bring.extend(servers::mariadb()?);
    bring.push(at(scene.write("service.py", include_str!("../cascade/service.py"))?, "/service.py"));
    bring.push(at(paths::workspace().join(PLAYBOOK), "/playbook.yaml"));
    let script = SCRIPT.replace("PACKAGES", &packages.display().to_string());
    let said = guest::boot(scene, "redis", &script, bring, servers::MEMORY)?;
    Ok(Found { storm: said.outcome("storm", PLAYBOOK)?, guarded: said.outcome("guarded", PLAYBOOK)? })
}
