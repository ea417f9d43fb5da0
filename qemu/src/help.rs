//! The help of programs that scripts start. The scripts print it before these programs are built,
//! from a copy in `scripts/help`.

/// Compares the help of a program with the copy for the script with this name. The program's tests
/// call this. If the variable `VRNIC_WRITE_HELP` is set, writes the copy.
///
/// # Panics
/// If the two differ, or the copy cannot be read or written.
pub fn check(script: &str, mut command: clap::Command) {
    let file = format!("{}/../scripts/help/{script}.txt", env!("CARGO_MANIFEST_DIR"));
    let help = command.render_long_help().to_string();
    let help: String = help.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    if std::env::var_os("VRNIC_WRITE_HELP").is_some() {
        std::fs::write(&file, &help).expect("the copy is written");
    }
    let copy = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(copy, help, "{file} is old: run this test with VRNIC_WRITE_HELP=1");
}
