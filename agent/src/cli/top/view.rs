//! `top` on a screen. Colour only helps: whatever it says is said by words, too.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, List, ListItem, ListState, Paragraph, Row, Table, TableState};

use super::model::{Drill, Edge, Model};

/// Lines of a small chart, from none to all of the highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Below a share of 10% of retries nobody needs to look.
const HIGH: f64 = 0.1;

const KEYS: &str = " s sort   n new drill   ↑↓ mark   a abort   q quit ";

pub(super) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let height = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3);
    let [head, edges, running, ended, message, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(height(model.edges.len().max(1))),
        Constraint::Max(height(model.running.len().max(1))),
        Constraint::Min(4),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(model), head);
    frame.render_widget(edge_table(model, edges.width), edges);
    let mut state = TableState::default().with_selected((!model.running.is_empty()).then_some(model.at));
    frame.render_stateful_widget(running_table(model), running, &mut state);
    frame.render_widget(ended_table(model), ended);
    frame.render_widget(Paragraph::new(model.message.clone().unwrap_or_default()), message);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::REVERSED)), keys);
    choice(model, frame);
}

fn heading(model: &Model) -> Line<'_> {
    let mut line = Line::from(vec![" stormdrill ".bold(), Span::raw(model.place.as_str()), Span::raw("  ")]);
    match &model.lost {
        None => line.push_span("live".fg(Color::Green)),
        Some(why) => line.push_span(format!("no answer: {why}").fg(Color::Red).bold()),
    }
    line
}

fn block(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title.bold())
}

fn heads(names: &'static [&'static str]) -> Row<'static> {
    Row::new(names.iter().copied()).style(Style::new().add_modifier(Modifier::DIM))
}

fn number(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
}

fn edge_table(model: &Model, width: u16) -> Table<'_> {
    // What the fixed columns leave.
    let room = usize::from(width.saturating_sub(73)).clamp(8, 60);
    let row = |edge: &'_ Edge| {
        let retries = number(edge.retries.map(|share| 100.0 * share), 1, "%");
        let is_high = edge.retries.is_some_and(|share| share >= HIGH);
        Row::new(vec![
            Line::from(edge.name.clone()),
            Line::from(if edge.drill.is_empty() { "-".to_owned() } else { edge.drill.clone() }),
            Line::from(edge.role.clone()),
            Line::from(number(edge.qps, 1, "")).right_aligned(),
            Line::from(if is_high { retries.fg(Color::Yellow).bold() } else { Span::raw(retries) }).right_aligned(),
            Line::from(edge.failures.to_string()).right_aligned(),
            Line::from(number(edge.p99, 1, " ms")).right_aligned(),
            Line::from(bars(&edge.history, room).fg(Color::Cyan)),
        ])
    };
    let widths = [
        Constraint::Length(14),
        Constraint::Length(14),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Min(8),
    ];
    let title = format!(" Edges, by {} ", model.sort.as_str());
    Table::new(model.edges.iter().map(row), widths)
        .header(heads(&["edge", "drill", "role", "     QPS", "retries", "failed", "      p99", "QPS so far"]))
        .block(block(title))
}

fn running_table(model: &Model) -> Table<'_> {
    let row = |drill: &Drill| {
        let phase = drill.phase.clone().unwrap_or_else(|| "starting".to_owned());
        let phase = match drill.left {
            Some(left) => format!("{phase}, {left:.0} s left"),
            None => phase,
        };
        Row::new(vec![drill.id.clone(), drill.playbook.clone(), phase, drill.faults.join(", ")])
    };
    let widths = [Constraint::Length(16), Constraint::Length(24), Constraint::Length(24), Constraint::Min(10)];
    Table::new(model.running.iter().map(row), widths)
        .header(heads(&["id", "playbook", "phase", "fault hit/selected"]))
        .row_highlight_style(Style::new().add_modifier(Modifier::BOLD))
        .highlight_symbol("> ")
        .block(block(format!(" Running: {} ", model.running.len())))
}

fn ended_table(model: &Model) -> Table<'_> {
    let row = |drill: &Drill| {
        let outcome = drill.verdict.as_ref().unwrap_or(&drill.state).clone();
        let color = match outcome.as_str() {
            "pass" => Color::Green,
            "fail" | "failed" => Color::Red,
            _ => Color::Yellow,
        };
        Row::new(vec![
            Line::from(outcome.fg(color)),
            Line::from(drill.playbook.clone()),
            Line::from(drill.started_at.clone()),
            Line::from(drill.id.clone()),
            Line::from(drill.reason.clone().unwrap_or_default()),
        ])
    };
    let widths = [Constraint::Length(12), Constraint::Length(24), Constraint::Length(20), Constraint::Length(16), Constraint::Min(10)];
    Table::new(model.ended.iter().map(row), widths)
        .header(heads(&["verdict", "playbook", "started", "id", "reason"]))
        .block(block(" Results ".to_owned()))
}

fn choice(model: &Model, frame: &mut Frame<'_>) {
    let Some(choice) = &model.choice else { return };
    let rows = u16::try_from(choice.names.len()).unwrap_or(u16::MAX).saturating_add(2);
    let [area] = Layout::horizontal([Constraint::Length(50)]).flex(Flex::Center).areas(frame.area());
    let [area]: [Rect; 1] = Layout::vertical([Constraint::Max(rows)]).flex(Flex::Center).areas(area);
    let list = List::new(choice.names.iter().map(|name| ListItem::new(name.as_str())))
        .block(Block::bordered().title(" Start a drill: Enter, or Esc "))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    frame.render_widget(Clear, area);
    frame.render_stateful_widget(list, area, &mut ListState::default().with_selected(Some(choice.at)));
}

/// The newest values that there is room for.
fn bars(values: &[u64], room: usize) -> String {
    let shown = &values[values.len().saturating_sub(room)..];
    let top = shown.iter().copied().max().unwrap_or_default().max(1);
    let steps = BARS.len() as u64 - 1;
    let bar = |value: &u64| usize::try_from((value * steps).div_ceil(top)).ok().and_then(|step| BARS.get(step)).copied();
    shown.iter().filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::seen;
    use super::*;

    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(model, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let shown = screen(&seen(), 120, 24);
        for expected in [
            " stormdrill unix:/s  live",
            "store          -              downstream     90.0   45.0%     12   40.0 ms █",
            "web            -              ingress        50.0       -      0   40.0 ms █",
            "cache          -              downstream        -       -      0         -",
            "> aa               store-fails              fault, 12 s left         http_status 3/10",
            "pass         past                     2026-01-01T00:00:00Z cc",
            KEYS.trim_end(),
        ] {
            assert!(shown.iter().any(|line| line == expected), "{expected:?} is not in\n{}", shown.join("\n"));
        }
    }

    #[test]
    fn a_small_screen_keeps_the_keys_and_no_screen_is_too_small() {
        let shown = screen(&seen(), 80, 24);
        assert!(shown[23].contains("q quit") && shown.iter().any(|line| line.starts_with("> aa")), "{}", shown.join("\n"));
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            screen(&seen(), width, height);
        }
    }

    #[test]
    fn a_daemon_that_is_gone_and_a_list_to_choose_from_are_shown() {
        let mut model = seen();
        model.lose("connect to /s".to_owned());
        model.offer(vec!["one".to_owned(), "two".to_owned()]);
        let shown = screen(&model, 100, 24).join("\n");
        assert!(shown.contains("no answer: connect to /s") && shown.contains("> one") && shown.contains("two"), "{shown}");
    }

    #[test]
    fn bars_go_from_none_to_the_highest() {
        assert_eq!(bars(&[0, 1, 50, 100], 10), "▁▂▅█");
        assert_eq!(bars(&[0, 0], 10), "▁▁");
        assert_eq!(bars(&[9, 9, 9, 3], 2), "█▄");
    }
}
