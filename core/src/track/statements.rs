//! Statements that were prepared: what a connection calls by a number or a name is the same text as elsewhere.

use crate::event::ConnId;
use crate::retry::fingerprint::join;
use crate::track::aged::AgedMap;

/// Statements remembered, over all connections.
const CAP: usize = 1 << 17;

/// The texts of prepared statements, hashed.
#[derive(Debug)]
pub(crate) struct Statements {
    texts: AgedMap<u64>,
}

/// What a statement is called by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Name {
    /// A number that the server gave.
    Number(u32),
    /// A hashed name that the client gave.
    Given(u64),
    /// Not yet anything: the answer to this request will give the number.
    Request(u32),
}

impl Default for Statements {
    fn default() -> Self {
        Self { texts: AgedMap::new(CAP, u64::MAX) }
    }
}

impl Statements {
    /// Remembers a text.
    pub(crate) fn learn(&mut self, conn: ConnId, name: Name, text: u64) {
        self.texts.update(key(conn, name), 0, |_| text);
    }

    /// The text that a name stands for. What is used is remembered for longer.
    pub(crate) fn text(&mut self, conn: ConnId, name: Name) -> Option<u64> {
        let text = self.texts.get(key(conn, name), 0)?;
        Some(self.texts.update(key(conn, name), 0, |_| text))
    }

    /// The same for the last time.
    pub(crate) fn take(&mut self, conn: ConnId, name: Name) -> Option<u64> {
        self.texts.take(key(conn, name), 0)
    }

    /// What a call of a statement is to be compared by: its text, or the connection's own name where that was never seen.
    pub(crate) fn called(&mut self, conn: ConnId, name: Name) -> u64 {
        self.text(conn, name).unwrap_or_else(|| key(conn, name))
    }
}

fn key(conn: ConnId, name: Name) -> u64 {
    let (kind, name) = match name {
        Name::Number(number) => (1, u64::from(number)),
        Name::Given(hash) => (2, hash),
        Name::Request(index) => (3, u64::from(index)),
    };
    join(join(conn.0, kind), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_their_connection() {
        let mut statements = Statements::default();
        statements.learn(ConnId(1), Name::Number(1), 77);
        statements.learn(ConnId(2), Name::Number(5), 77);
        assert_eq!(statements.called(ConnId(1), Name::Number(1)), statements.called(ConnId(2), Name::Number(5)));
        assert_ne!(statements.called(ConnId(1), Name::Number(1)), statements.called(ConnId(3), Name::Number(1)));
        assert_ne!(statements.called(ConnId(3), Name::Number(1)), statements.called(ConnId(4), Name::Number(1)));
        assert_eq!(statements.take(ConnId(1), Name::Number(1)), Some(77));
        assert_eq!(statements.text(ConnId(1), Name::Number(1)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut statements = Statements::default();
        for number in 0..(2 * u32::try_from(CAP).expect("small")) {
            statements.learn(ConnId(1), Name::Number(number), 1);
        }
        assert!(statements.texts.len() <= CAP);
    }
}
