//! Every table in `tests/data` holds, and together they are many.

use std::{fs, path::Path};

use zeroclaw_policy::{
    Level, Root, RootKind, Ruleset,
    cases::{Base, check},
};

fn base() -> Base {
    let mut rules = Ruleset::new(Level::Supervised);
    rules.home = Some("/home/u".into());
    rules.forbidden_paths =
        ["/etc/shadow", "/etc/gshadow", "/home/u/.ssh", "/home/u/.gnupg", "/home/u/.aws", "/home/u/.zeroclaw"]
            .map(Into::into)
            .to_vec();
    Base { rules, roots: vec![Root::new("/home/u/proj".into(), RootKind::Session)] }
}

#[test]
fn every_table_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut checked = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(directory).expect("the tables") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a table");
        let outcome = check(&text, &base()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        checked += outcome.checked;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        wrong.extend(outcome.mismatches.into_iter().map(|mismatch| {
            let reasons: Vec<_> =
                mismatch.verdict.reasons.iter().map(|reason| (reason.decision, &reason.text)).collect();
            format!("{name}:{}: {:?}: {:?} {reasons:?}", mismatch.line, mismatch.expected, mismatch.command)
        }));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= 400, "only {checked} commands");
}
