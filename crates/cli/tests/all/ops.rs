//! The example configurations in `ops/config` are read by the program they are for.

use std::path::Path;

use crate::common::Place;

#[test]
fn example_configurations_are_accepted() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/config");
    let place = Place::default();
    let mut checked = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = entry.unwrap().path();
        assert!(file.extension().is_some_and(|e| e == "toml"), "{file:?} is not an example");
        place.run(&["config", "check", file.to_str().unwrap()]).ok();
        checked += 1;
    }
    assert!(checked >= 3, "embedded, Postgres, split roles");
}
