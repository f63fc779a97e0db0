//! x
fn main() {
    let paths: Vec<_> = std::env::args().skip(1).map(Into::into).collect();
    let c = stormdrill::cli::validate::run(
        &paths,
        &[],
        stormdrill::diagnostic::Style::Plain,
        &mut std::io::stdout(),
        &mut std::io::stderr(),
    );
    std::process::exit(c.map_or(2, i32::from));
}
