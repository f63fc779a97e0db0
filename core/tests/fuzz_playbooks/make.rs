//! Playbooks, overrides and lines that nobody should write.

use super::simulation::Random;

/// An input.
pub(crate) enum Case {
    /// A playbook, and how it was made.
    Playbook(&'static str, String),
    /// A good playbook with an override.
    Override(String, String, String),
    /// A line of `expect:` or `guards:`.
    Line(String),
    /// A configuration of `serve`.
    Config(String),
}

impl Case {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Playbook(_, text) | Self::Line(text) | Self::Config(text) => text,
            Self::Override(_, _, value) => value,
        }
    }

    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Playbook(how, _) => how,
            Self::Override(..) => "override",
            Self::Line(_) => "line",
            Self::Config(_) => "config",
        }
    }
}

/// The shipped playbooks: what is damaged should have been good.
const SHIPPED: [&str; 6] = [
    include_str!("../../../playbooks/packet-loss.yaml"),
    include_str!("../../../playbooks/redis-cascade.yaml"),
    include_str!("../../../playbooks/retry-amplification.yaml"),
    include_str!("../../../playbooks/partition.yaml"),
    include_str!("../../../playbooks/metastable-overload.yaml"),
    include_str!("../../../playbooks/gateway-ejection.yaml"),
];

/// Words that mean something, alone or together, where they may stand.
const WORDS: &str = "web db retry ratio of first all downstream ingress qps per amplification success goodput latency p50 p99 p99.9 failure \
    explicit attempts max layers retrying cost connections opened connect failures retransmit non idempotent retries nonretryable after \
    violations backoff jitter peak to mean late starts orphan work metastable not recovers within windows during fault baseline recovery in every \
    window increase for < <= ≤ > >= ≥ = % 20% 1.2x 1.2 200/s 100ms 3s 2 0 -1 999999999999999999999999 1e308 nan inf 0.1% 101% p p0 p100 p99.99999";

/// What does harm somewhere.
const HOSTILE: [&str; 30] = [
    "\0",
    "\u{feff}",
    "\r",
    "\u{85}",
    "\u{2028}",
    "\u{202e}",
    "e\u{301}\u{301}\u{301}",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "ﬁ",
    "İ",
    "ß",
    "\u{10ffff}",
    "*a",
    "&a ",
    "!!binary ",
    "!!int ",
    "<<: ",
    "? ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\t",
    "|+9\n",
    ">-\n",
    "\"\\x00\\u0000\"",
    "'",
    "{",
    "[",
    "99999999999999999999999999999999999999999999%",
    "0x7fffffffffffffff",
];

/// Keys of a playbook, at whatever level.
const KEYS: &str = "version name description observe ingress downstream scope window marker load phases faults guards expect loss delay duplicate \
    corrupt reorder rate partition refuse http_status to direction select netns interface addresses ports protocol peers flows cgroup container pid \
    exclude include_management share ecn gemodel state p r h k limit seed time jitter distribution table slot url timeout baseline fault recovery port address";

/// What is made of random numbers.
pub(crate) struct Maker(Random);

impl Maker {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Random::seeded(seed))
    }

    fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() % end.max(1) as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn word<'a>(&mut self, of: &'a str) -> &'a str {
        let words: Vec<&str> = of.split_whitespace().collect();
        self.one(&words)
    }

    pub(crate) fn case(&mut self) -> Case {
        match self.below(100) {
            0..=29 => Case::Playbook("damaged", self.damaged()),
            30..=39 => Case::Playbook("made-up", self.tree(0)),
            40..=44 => Case::Playbook("nested", self.nested()),
            45..=48 => Case::Playbook("aliases", self.aliases()),
            49..=51 => Case::Playbook("long", self.long()),
            52..=53 => Case::Config(self.config()),
            54..=61 => {
                let path = self.path();
                let value = if self.below(3) == 0 { self.nested().chars().take(300).collect() } else { self.value() };
                Case::Override(SHIPPED[self.below(SHIPPED.len())].to_owned(), path, value)
            }
            _ => Case::Line(self.line()),
        }
    }

    /// A shipped playbook with up to eight things done to it.
    fn damaged(&mut self) -> String {
        let mut text = self.one(&SHIPPED).to_owned();
        for _ in 0..self.below(8) {
            let start = text.floor_char_boundary(self.below(text.len() + 1));
            let reach = if self.below(4) == 0 { 400 } else { 12 };
            let end = text.floor_char_boundary((start + self.below(reach)).min(text.len()));
            match self.below(7) {
                0 => text.replace_range(start..end, ""),
                1 => {
                    let twice = text[start..end].to_owned();
                    text.insert_str(start, &twice);
                }
                2 => {
                    let moved = text[start..end].to_owned();
                    text.replace_range(start..end, "");
                    let to = text.floor_char_boundary(self.below(text.len() + 1));
                    text.insert_str(to, &moved);
                }
                3 => text.replace_range(start..end, self.one(&HOSTILE)),
                4 => {
                    let word = self.value();
                    text.replace_range(start..end, &word);
                }
                5 => self.other_value(&mut text),
                _ => {
                    let line = self.line();
                    text.insert_str(text.len(), &format!("  - {line}\n"));
                }
            }
        }
        text
    }

    /// Another value behind some colon: the shape stays, the meaning goes.
    fn other_value(&mut self, text: &mut String) {
        let colons: Vec<usize> = text.match_indices(": ").map(|(at, _)| at + 2).collect();
        let Some(&start) = colons.get(self.below(colons.len())) else { return };
        let end = text[start..].find([',', '}', '\n']).map_or(text.len(), |at| start + at);
        let value = self.value();
        text.replace_range(start..end, &value);
    }

    fn value(&mut self) -> String {
        match self.below(8) {
            0 => self.one(&HOSTILE).to_owned(),
            1 => format!("{}{}", self.bits(), self.one(&["", "s", "ms", "%", "/s", "kbit", "ns", "h"])),
            2 => format!("{}.{}{}", self.below(1000), self.bits(), self.one(&["s", "%", "x", ""])),
            3 => self.word(KEYS).to_owned(),
            4 => format!("{{{}: {}}}", self.word(KEYS), self.word(WORDS)),
            5 => format!("[{}, {}]", self.word(WORDS), self.below(70_000)),
            6 => format!("{}.{}.{}.{}/{}", self.below(300), self.below(300), self.below(300), self.below(300), self.below(140)),
            _ => self.word(WORDS).to_owned(),
        }
    }

    fn path(&mut self) -> String {
        let steps = 1 + self.below(4);
        let step = |maker: &mut Self| match maker.below(4) {
            0 => maker.bits().to_string(),
            1 => maker.below(4).to_string(),
            2 => maker.one(&HOSTILE).to_owned(),
            _ => maker.word(KEYS).to_owned(),
        };
        (0..steps).map(|_| step(self)).collect::<Vec<_>>().join(".")
    }

    /// A mapping of known keys, at whatever depth they like.
    fn tree(&mut self, depth: usize) -> String {
        let indent = "  ".repeat(depth);
        let mut text = String::new();
        for _ in 0..1 + self.below(6) {
            let key = if self.below(12) == 0 { self.one(&HOSTILE) } else { self.word(KEYS) };
            if depth < 12 && self.below(3) == 0 {
                text.push_str(&format!("{indent}{key}:\n{}", self.tree(depth + 1)));
            } else if self.below(5) == 0 {
                text.push_str(&format!("{indent}{key}:\n{indent}  - {}\n{indent}  - {}\n", self.line(), self.value()));
            } else {
                text.push_str(&format!("{indent}{key}: {}\n", self.value()));
            }
        }
        text
    }

    fn nested(&mut self) -> String {
        let times = [20, 25, 1000, 60_000][self.below(4)];
        let open = self.one(&["[", "{a: ", "- ", "? ", "{? ", "[a, ", "&a [", "!!seq [", "{a: {b: ", "\"", "[\"", "a:\n"]);
        let front = self.one(&["", "observe: ", "faults:\n  - ", "expect: "]);
        let mut text = format!("{front}{}", open.repeat(times));
        if self.below(2) == 0 {
            text.push('a');
            text.push_str(&self.one(&["]", "}", "}}", "\"]"]).repeat(times));
        }
        if self.below(4) == 0 {
            text = (0..times.min(700)).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        }
        text
    }

    fn aliases(&mut self) -> String {
        let (wide, deep) = (1 + self.below(40), 1 + self.below(40));
        let mut text = format!("a0: &a0 [{}]\n", "x, ".repeat(wide));
        for level in 1..deep {
            let of = if self.below(6) == 0 { level } else { level - 1 };
            let times = format!("*a{of}, ").repeat(wide);
            text.push_str(&format!(
                "a{level}: &a{level} {}\n",
                if self.below(2) == 0 { format!("[{times}]") } else { format!("{{k: [{times}]}}") }
            ));
        }
        text.push_str(&format!("expect: *a{}\nfaults: *a{}\n", self.below(deep), self.below(deep + 1)));
        text
    }

    /// Lines and scalars of up to a megabyte, most of them just below the size at which a file is refused.
    fn long(&mut self) -> String {
        let length = [60_000, 250_000, 1_000_000][self.below(3)];
        let part = match self.below(6) {
            0 => self.one(&HOSTILE).to_owned(),
            1 => "retry ratio ".to_owned(),
            2 => "x".to_owned(),
            3 => "\\u0000".to_owned(),
            4 => "k: 1, ".to_owned(),
            _ => "é\u{301} ".to_owned(),
        };
        let long = part.repeat(length / part.len());
        match self.below(7) {
            0 => format!("version: 1\nname: {long}\n"),
            1 => format!("expect:\n  - {long}\n"),
            2 => format!("{long}: a\n"),
            3 => format!("a: \"{long}\"\n"),
            4 => format!("# {long}\nversion: 1\n"),
            5 => format!("observe: {{{long}}}\n"),
            _ => format!("{}\nexpect:\n{}", SHIPPED[0], format!("  - {part}\n").repeat(length / (part.len() + 5))),
        }
    }

    fn config(&mut self) -> String {
        let keys = "listen socket token_file tls state_dir playbooks observe retention limits etcd cert key endpoints requests";
        (0..1 + self.below(6)).map(|_| format!("{}: {}\n", self.word(keys), self.value())).collect()
    }

    /// Words of the grammar in an order that may make sense.
    fn line(&mut self) -> String {
        if self.below(3) == 0 {
            return self.sensible();
        }
        let mut words: Vec<String> = (0..1 + self.below(12)).map(|_| self.word(WORDS).to_owned()).collect();
        if self.below(3) == 0 {
            let at = self.below(words.len());
            words[at].push_str(self.one(&HOSTILE));
        }
        if self.below(200) == 0 {
            words.push("retry ".repeat(20_000));
        }
        let between = self.one(&[" ", " ", " ", "_", "  ", "", "\u{a0}", "\t"]);
        words.join(between)
    }

    fn sensible(&mut self) -> String {
        let edge = self.one(&["", "web ", "db ", "retry ", "other "]);
        let metric = self.one(&[
            "downstream QPS",
            "retry ratio",
            "retry_ratio of first",
            "amplification",
            "success ratio",
            "latency p99",
            "failure latency p50",
            "goodput",
            "attempts max",
            "connections opened",
            "backoff jitter",
            "orphan work",
            "late starts",
            "cost per success",
            "retransmit ratio",
        ]);
        let tail = match self.below(4) {
            0 => format!("recovers within {} windows", self.below(20)),
            1 => format!("recovers to {} within {}s", self.value(), self.bits() >> self.below(64)),
            _ => {
                let increase = self.one(&["", "", "increase "]);
                let op = self.one(&["<", "<=", "≤", ">", ">=", "≥", "=", "=<"]);
                let value = if self.below(4) == 0 {
                    self.value()
                } else {
                    format!("{}.{}{}", self.below(30), self.below(1000), self.one(&["%", "x", "", "s", "ms", "/s"]))
                };
                let phase =
                    self.one(&["", "", " during recovery", " during baseline", " in every window", " for 3 windows", " during nothing"]);
                format!("{increase}{op} {value}{phase}")
            }
        };
        format!("{edge}{metric} {tail}")
    }
}
