//! What is wrong with a configuration: a rule, a place, what follows from it, and what to write instead.

use super::Place;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Likely to hurt in an outage.
    Warning,
    /// Multiplies calls, repeats writes, or does not do what it says.
    Error,
}

impl Severity {
    /// Its name in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $severity:ident;)*) => {
        /// The rules of the auditor. Names and severities are a contract; `docs/audit.md` explains each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// Every rule, the worst first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in output.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

rules! {
    /// More than one layer retries the same failure.
    SeveralLayers = "several-layers", Error;
    /// The worst case exceeds the limit that was given.
    TooManyCalls = "too-many-calls", Error;
    /// Nothing in the file limits the tries.
    UnlimitedTries = "unlimited-tries", Error;
    /// Requests that change something are repeated after they may have been carried out, by choice.
    RepeatsWrites = "repeats-writes", Error;
    /// Answers are retried that will be the same again.
    RetriesRefusals = "retries-refusals", Error;
    /// A try may take as long as all tries together, or longer.
    TryTimeoutTooLong = "try-timeout-too-long", Error;
    /// The caller gives up before the callee does.
    CallerGivesUpFirst = "caller-gives-up-first", Error;
    /// The system that reads it refuses it, or drops it in silence.
    InvalidPolicy = "invalid-policy", Error;
    /// The tries are limited by the number of servers alone.
    TriesUnset = "tries-unset", Warning;
    /// Retries without a limit on the time of all tries.
    NoTimeLimit = "no-time-limit", Warning;
    /// Retries that no budget limits, where the system has budgets.
    NoBudget = "no-budget", Warning;
    /// A budget so large that it limits nothing.
    WeakBudget = "weak-budget", Warning;
    /// Retries whatever the method, where the system could tell.
    AnyMethod = "any-method", Warning;
    /// Answers that say "too much" are answered with more.
    RetriesOverload = "retries-overload", Warning;
    /// Statuses are retried behind which the call may have been carried out.
    MaybeCarriedOut = "maybe-carried-out", Warning;
    /// A listed status takes servers out of the pool.
    EjectsOnStatus = "ejects-on-status", Warning;
    /// The retries go where the first try failed.
    SameServer = "same-server", Warning;
    /// A second try starts while the first still runs.
    Hedging = "hedging", Warning;
    /// Waits without jitter: clients that failed together come back together.
    NoJitter = "no-jitter", Warning;
    /// More attempts than the client will make.
    AttemptsCapped = "attempts-capped", Warning;
    /// A caller's headers can raise the tries.
    UntrustedHeaders = "untrusted-headers", Warning;
    /// A part of the configuration was not seen.
    NotFollowed = "not-followed", Warning;
    /// A value that could not be read; the default was assumed.
    Unreadable = "unreadable-value", Warning;
    /// Retries that nobody wrote down.
    DefaultRetries = "default-retries", Note;
    /// How a budget's floor weighs at little traffic.
    BudgetFloor = "budget-floor", Note;
    /// Retries are configured and never happen.
    NeverRetries = "never-retries", Note;
    /// Something may add tries beyond the limit.
    ExtraTries = "extra-tries", Note;
    /// Attempts carry no number that a receiver could count.
    NoMarker = "no-marker", Note;
}

/// One finding. Texts are lower-case fragments without a final period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Where; `None` for what concerns the layers together.
    pub place: Option<Place>,
    /// The headline.
    pub message: String,
    /// What to say at the place itself.
    pub label: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Finding {
    pub(super) fn new(rule: Rule, place: impl Into<Option<Place>>, message: impl Into<String>) -> Self {
        Self { rule, place: place.into(), message: message.into(), label: "here".to_owned(), help: None }
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
