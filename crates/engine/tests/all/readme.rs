//! The README's program is the example that is compiled and run.

use std::path::Path;

#[test]
fn the_readme_shows_the_quickstart_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(root.join("examples/quickstart.rs")).unwrap();
    assert!(example.lines().count() < 30, "a whole program in under 30 lines");
    let path = root.join("../../README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (open, close) = ("<!-- quickstart -->\n```rust\n", "```\n<!-- /quickstart -->");
    let start = readme.find(open).expect("the README has a quickstart") + open.len();
    let end = start + readme[start..].find(close).expect("the quickstart ends");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, format!("{}{example}{}", &readme[..start], &readme[end..])).unwrap();
        return;
    }
    assert_eq!(&readme[start..end], example, "run this test with TIDEGATE_BLESS=1");
}
