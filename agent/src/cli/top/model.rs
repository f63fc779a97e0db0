//! What `top` knows, and what keys do to it. No terminal in here.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

/// Points of a small chart, one a second.
const POINTS: usize = 120;

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Abort(String),
    Start(String),
    /// The playbooks that there are.
    List,
}

/// By what edges are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Qps,
    Retries,
    Failures,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Name, Self::Qps, Self::Retries, Self::Failures];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Qps => "QPS",
            Self::Retries => "retries",
            Self::Failures => "failures",
        }
    }
}

/// One edge, of the constant observation or of a drill.
#[derive(Debug, Clone, Default)]
pub(super) struct Edge {
    pub(super) name: String,
    pub(super) role: String,
    /// The playbook of the drill that observes it; empty for one that is observed all the time.
    pub(super) drill: String,
    pub(super) qps: Option<f64>,
    /// Of a downstream edge.
    pub(super) retries: Option<f64>,
    pub(super) failures: u64,
    /// Milliseconds.
    pub(super) p99: Option<f64>,
    /// Of QPS, the newest last.
    pub(super) history: Vec<u64>,
}

/// One drill.
#[derive(Debug, Clone, Default)]
pub(super) struct Drill {
    pub(super) id: String,
    pub(super) playbook: String,
    pub(super) state: String,
    pub(super) phase: Option<String>,
    pub(super) left: Option<f64>,
    pub(super) verdict: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) started_at: String,
    /// `loss 3/10`, hit of selected.
    pub(super) faults: Vec<String>,
}

/// A list to choose from that lies over the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) names: Vec<String>,
    pub(super) at: usize,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) place: String,
    pub(super) edges: Vec<Edge>,
    pub(super) running: Vec<Drill>,
    pub(super) ended: Vec<Drill>,
    /// Which of the running ones keys are for.
    pub(super) at: usize,
    pub(super) sort: Sort,
    pub(super) choice: Option<Choice>,
    /// What came of the last action.
    pub(super) message: Option<String>,
    /// Why the daemon does not answer.
    pub(super) lost: Option<String>,
    history: BTreeMap<(String, String), VecDeque<u64>>,
}

impl Model {
    pub(super) fn new(place: String) -> Self {
        Self {
            place,
            edges: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            at: 0,
            sort: Sort::Name,
            choice: None,
            message: None,
            lost: None,
            history: BTreeMap::new(),
        }
    }

    /// The daemon's answers of `/v1/edges` and `/v1/drills`.
    pub(super) fn see(&mut self, edges: &Value, drills: &Value) {
        self.lost = None;
        let selected = self.running.get(self.at).map(|drill| drill.id.clone());
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all = list(&drills["drills"]);
        let (running, ended): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|drill| drill["state"] == "running");
        let mut seen: Vec<Edge> = list(&edges["edges"]).iter().map(|value| edge(value, "")).collect();
        for drill in &running {
            seen.extend(list(&drill["edges"]).iter().map(|value| edge(value, drill["playbook"].as_str().unwrap_or_default())));
        }
        self.history.retain(|(name, drill), _| seen.iter().any(|edge| edge.name == *name && edge.drill == *drill));
        for edge in &mut seen {
            let history = self.history.entry((edge.name.clone(), edge.drill.clone())).or_default();
            history.extend(edge.qps.map(whole));
            if history.len() > POINTS {
                history.pop_front();
            }
            edge.history = history.iter().copied().collect();
        }
        self.edges = seen;
        self.running = running.iter().map(drill).collect();
        self.ended = ended.iter().map(drill).collect();
        let stays = self.running.iter().position(|drill| Some(&drill.id) == selected.as_ref());
        self.at = stays.unwrap_or(self.at).min(self.running.len().saturating_sub(1));
        self.order();
    }

    /// It does not answer.
    pub(super) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    pub(super) fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Shows playbooks to choose from.
    pub(super) fn offer(&mut self, names: Vec<String>) {
        if names.is_empty() {
            self.tell("there is no playbook in the configured folder".to_owned());
        } else {
            self.choice = Some(Choice { names, at: 0 });
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Action::Quit);
        }
        let Some(choice) = &mut self.choice else { return self.plain_key(key.code) };
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => choice.at = choice.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => choice.at = (choice.at + 1).min(choice.names.len() - 1),
            KeyCode::Enter => {
                let name = choice.names.swap_remove(choice.at);
                self.choice = None;
                return Some(Action::Start(name));
            }
            KeyCode::Esc | KeyCode::Char('q') => self.choice = None,
            _ => {}
        }
        None
    }

    fn plain_key(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.at = (self.at + 1).min(self.running.len().saturating_sub(1)),
            KeyCode::Char('s') => {
                let next = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or_default() + 1;
                self.sort = Sort::ALL[next % Sort::ALL.len()];
                self.order();
            }
            KeyCode::Char('n') => return Some(Action::List),
            KeyCode::Char('a') => match self.running.get(self.at) {
                Some(drill) => {
                    let id = drill.id.clone();
                    self.message = Some(format!("ending drill {id}"));
                    return Some(Action::Abort(id));
                }
                None => self.tell("no drill is running".to_owned()),
            },
            _ => {}
        }
        None
    }

    fn order(&mut self) {
        let sort = self.sort;
        self.edges.sort_by(|a, b| {
            let by_name = || (&a.drill, &a.name).cmp(&(&b.drill, &b.name));
            let numbers = match sort {
                Sort::Name => std::cmp::Ordering::Equal,
                Sort::Qps => b.qps.unwrap_or(-1.0).total_cmp(&a.qps.unwrap_or(-1.0)),
                Sort::Retries => b.retries.unwrap_or(-1.0).total_cmp(&a.retries.unwrap_or(-1.0)),
                Sort::Failures => b.failures.cmp(&a.failures),
            };
            numbers.then_with(by_name)
        });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn edge(value: &Value, drill: &str) -> Edge {
    let window = &value["window"];
    let is_downstream = value["role"] == "downstream";
    Edge {
        name: text(&value["name"]),
        role: text(&value["role"]),
        drill: drill.to_owned(),
        qps: window["qps"].as_f64(),
        retries: window["retry_ratio"].as_f64().filter(|_| is_downstream),
        failures: window["failures"].as_object().map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum()),
        p99: window["latency_ms"]["p99"].as_f64(),
        history: Vec::new(),
    }
}

fn drill(value: &Value) -> Drill {
    let fault = |fault: &Value| format!("{} {}/{}", fault["kind"].as_str().unwrap_or_default(), fault["hit"], fault["selected"]);
    Drill {
        id: text(&value["id"]),
        playbook: text(&value["playbook"]),
        state: text(&value["state"]),
        phase: value["phase"].as_str().map(str::to_owned),
        left: value["phase_seconds_left"].as_f64(),
        verdict: value["verdict"].as_str().map(str::to_owned),
        reason: value["reason"].as_str().map(str::to_owned),
        started_at: text(&value["started_at"]),
        faults: value["faults"].as_array().into_iter().flatten().map(fault).collect(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, drawn with eight steps")]
fn whole(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in super::super) fn seen() -> Model {
        let window = |qps: f64, ratio: f64, failed: u64| json!({ "qps": qps, "retry_ratio": ratio, "failures": { "5xx": failed }, "latency_ms": { "p99": 40.0 } });
        let edges = json!({ "edges": [
            { "name": "web", "role": "ingress", "window": window(50.0, 0.0, 0) },
            { "name": "store", "role": "downstream", "window": window(90.0, 0.45, 12) },
            { "name": "cache", "role": "downstream", "window": null },
        ] });
        let drills = json!({ "drills": [
            { "id": "aa", "playbook": "store-fails", "state": "running", "phase": "fault", "phase_seconds_left": 12.3, "started_at": "2026-01-01T00:00:00Z",
              "faults": [{ "kind": "http_status", "selected": 10, "hit": 3 }], "edges": [{ "name": "store", "role": "downstream", "window": window(88.0, 0.4, 3) }] },
            { "id": "bb", "playbook": "other", "state": "running", "phase": null, "faults": [], "edges": [] },
            { "id": "cc", "playbook": "past", "state": "finished", "verdict": "pass", "started_at": "2026-01-01T00:00:00Z", "faults": [], "edges": [] },
        ] });
        let mut model = Model::new("unix:/s".to_owned());
        model.see(&edges, &drills);
        model
    }

    fn press(model: &mut Model, code: KeyCode) -> Option<Action> {
        model.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(model: &Model) -> Vec<String> {
        model.edges.iter().map(|edge| format!("{}{}", edge.drill, edge.name)).collect()
    }

    #[test]
    fn a_key_sorts_by_the_next_column_and_in_the_end_by_name_again() {
        let mut model = seen();
        assert_eq!(names(&model), ["cache", "store", "web", "store-failsstore"]);
        press(&mut model, KeyCode::Char('s'));
        assert_eq!((names(&model), model.sort), (["store", "store-failsstore", "web", "cache"].map(str::to_owned).to_vec(), Sort::Qps));
        press(&mut model, KeyCode::Char('s'));
        assert_eq!(names(&model)[0], "store");
        press(&mut model, KeyCode::Char('s'));
        press(&mut model, KeyCode::Char('s'));
        assert_eq!(model.sort, Sort::Name);
    }

    #[test]
    fn keys_are_for_the_drill_that_is_marked_and_it_stays_marked() {
        let mut model = seen();
        press(&mut model, KeyCode::Down);
        press(&mut model, KeyCode::Down);
        assert_eq!(press(&mut model, KeyCode::Char('a')), Some(Action::Abort("bb".to_owned())));
        let only = json!({ "drills": [{ "id": "bb", "state": "running" }] });
        model.see(&json!({}), &only);
        assert_eq!(press(&mut model, KeyCode::Char('a')), Some(Action::Abort("bb".to_owned())));
        model.see(&json!({}), &json!({ "drills": [] }));
        assert_eq!(press(&mut model, KeyCode::Char('a')), None);
        assert_eq!(model.message.as_deref(), Some("no drill is running"));
    }

    #[test]
    fn a_drill_is_started_by_choosing_a_playbook() {
        let mut model = seen();
        assert_eq!(press(&mut model, KeyCode::Char('n')), Some(Action::List));
        model.offer(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(press(&mut model, KeyCode::Char('a')), None, "keys are the list's while it is there");
        press(&mut model, KeyCode::Down);
        assert_eq!(press(&mut model, KeyCode::Enter), Some(Action::Start("b".to_owned())));
        assert_eq!(model.choice, None);
        model.offer(vec!["a".to_owned()]);
        assert_eq!(press(&mut model, KeyCode::Char('q')), None);
        assert_eq!(press(&mut model, KeyCode::Char('q')), Some(Action::Quit));
        model.offer(Vec::new());
        assert_eq!(model.choice, None);
    }

    #[test]
    fn history_is_bounded_and_ends_with_its_edge() {
        let mut model = seen();
        for _ in 0..500 {
            model.see(&json!({ "edges": [{ "name": "web", "window": { "qps": 5.4 } }] }), &json!({}));
        }
        assert_eq!((model.edges[0].history.len(), model.edges[0].history[7]), (POINTS, 5));
        model.see(&json!({ "edges": [] }), &json!({}));
        assert!(model.history.is_empty());
    }
}
