//! Words in messages: the known word that a mistyped one was probably meant to be, lists, excerpts.

/// The nearest of `known`, if it is near enough to be worth proposing: one slip in three letters, and at least one.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    if length > 60 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        // Of one letter nothing is left when it is another.
        .filter(|(distance, candidate)| {
            *distance <= (length.max(candidate.chars().count()) / 3).max(1) && *distance < length.max(candidate.chars().count())
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "`a`, `b` and `c`".
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// At most forty characters of a text, for use in messages.
pub(crate) fn excerpt(text: &str) -> String {
    let mut out: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}

/// Whether a character acts on what is around it instead of being seen: a control character, or one that turns the direction of writing.
pub(crate) fn acts_unseen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

/// A text whose characters act on nothing around them. It keeps its length in bytes, so that places in it stay where they are.
#[must_use]
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if acts_unseen(c) && !matches!(c, '\n' | '\r' | '\t') {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

/// `a` or `an`, whichever the word takes.
pub(crate) fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// So many decimals, and of a small number as many more as its first two digits need.
pub(crate) fn decimals(value: f64, usual: usize) -> String {
    // More than any measurement has; it also bounds what a result from elsewhere can ask for.
    const MOST: usize = 15;
    let needed = (0..=MOST).find(|decimals| value.abs() * 10_f64.powi(i32::try_from(*decimals).unwrap_or(0)) >= 9.95).unwrap_or(MOST);
    if value == 0.0 || !value.is_finite() || needed <= usual {
        return format!("{value:.usual$}");
    }
    let text = format!("{value:.needed$}");
    let kept = text.trim_end_matches('0');
    let least = text.find('.').map_or(text.len(), |point| point + 1 + usual);
    let end = kept.len().max(least);
    text.get(..end).unwrap_or(&text).trim_end_matches('.').to_owned()
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_two_digits() {
        for (value, usual, want) in [
            (0.04, 1, "0.04"),
            (0.05, 1, "0.05"),
            (0.000_432_1, 3, "0.00043"),
            (0.0, 1, "0.0"),
            (12.34, 1, "12.3"),
            (0.5, 1, "0.5"),
            (0.25, 1, "0.25"),
            (-0.012, 1, "-0.012"),
            (99.96, 1, "100.0"),
            (f64::NAN, 1, "NaN"),
        ] {
            assert_eq!(decimals(value, usual), want, "{value}");
        }
    }

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["baseline", "fault", "recovery", "loss", "delay"];
        assert_eq!(nearest("basline", known), Some("baseline"));
        assert_eq!(nearest("fualt", known), Some("fault"));
        assert_eq!(nearest("Faults", known), Some("fault"));
        assert_eq!(nearest("los", known), Some("loss"));
        assert_eq!(nearest("partition", known), None);
        assert_eq!(nearest("", known), None);
    }
}
