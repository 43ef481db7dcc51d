//! What a script contains, and that nothing makes the reader slow, deep or fail.

use super::{Access, Redirect, Step, Unclear, Word, parse, simple_command};

fn names(script: &str) -> Vec<String> {
    parse(script)
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Command(command) => command.words.first().map(Word::shown),
            Step::Redirect(_) => None,
        })
        .collect()
}

#[test]
fn one_plain_command_has_words() {
    let cases: &[(&str, &[&str])] = &[
        ("ls", &["ls"]),
        ("  ls -l  ", &["ls", "-l"]),
        (r#"r\m "a b" 'c d'e"#, &["rm", "a b", "c de"]),
        (r#""rm" x"#, &["rm", "x"]),
        (r#"echo "a\"b\\c\d""#, &["echo", r#"a"b\c\d"#]),
        ("ls # comment", &["ls"]),
        ("ls;", &["ls"]),
        ("ls\n", &["ls"]),
        ("a\\\nb", &["ab"]),
        ("echo a=b", &["echo", "a=b"]),
        ("find . -exec {} +", &["find", ".", "-exec", "{}", "+"]),
        ("echo 'a;b|c>d$e`f'", &["echo", "a;b|c>d$e`f"]),
        ("grep x$ y", &["grep", "x$", "y"]),
        ("git show HEAD@{1}", &["git", "show", "HEAD@{1}"]),
    ];
    for (script, words) in cases {
        let seen = simple_command(script).unwrap_or_else(|| panic!("{script}: {:?}", parse(script)));
        assert_eq!(seen, *words, "{script}");
    }
}

#[test]
fn everything_else_is_not_one_plain_command() {
    let cases = [
        "",
        "#",
        "a;b",
        "a\nb",
        "a&&b",
        "a||b",
        "a|b",
        "a&",
        "! a",
        "(a)",
        "{ a; }",
        "a>b",
        "a<b",
        "a 2>&1",
        "a <&-",
        ">b",
        "A=b",
        "A=b c",
        "$a",
        "a $b",
        "a `b`",
        "a \"$b\"",
        "a $(b)",
        "a *",
        "a ?",
        "a [b]",
        "a ~",
        "~/a",
        "a {b,c}",
        "a {1..3}",
        "a $'b'",
        "a $\"b\"",
        "a 'b",
        "a \"b",
        "a \\",
        "if a; then b; fi",
        "for a in b; do c; done",
        "a() { b; }",
        "a <<E\nb\nE\n",
        "a <(b)",
        "a=(b c)",
        "a $((1+2))",
        "a\0b",
        "a\rb",
        "a\u{1b}b",
        "time { a; }",
    ];
    for script in cases {
        assert_eq!(simple_command(script), None, "{script:?}");
    }
}

#[test]
fn every_command_of_every_construct_is_found() {
    let cases: &[(&str, &[&str])] = &[
        ("a; b & c\nd", &["a", "b", "c", "d"]),
        ("a && b || ! c | d", &["a", "b", "c", "d"]),
        ("(a; { b; c; })", &["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]),
        ("for x in 1 2; do a; done", &["a"]),
        ("case x in a) b;; (c|d) e; esac", &["b", "e"]),
        ("f() { a; }; b", &["a", "b"]),
        ("cat <<E; rm x\nbody\nE\n", &["cat", "rm"]),
        ("cat <<'E' && rm x\nbody $(no)\nE\n", &["cat", "rm"]),
        ("cat <<E\n$(rm x) `rm y`\nE\n", &["rm", "rm", "cat"]),
        ("echo $(a $(b)) \"`c`\"", &["b", "a", "c", "echo"]),
        ("a $(( $(b) + 1 ))", &["b", "a"]),
        (">/dev/null rm -rf x", &["rm"]),
        ("FOO=\"a ls\" rm x", &["rm"]),
        ("A=$(a) b", &["a", "b"]),
        ("a > $(b)", &["b", "a"]),
    ];
    for (script, expected) in cases {
        assert_eq!(names(script), *expected, "{script}: {:?}", parse(script));
    }
}

#[test]
fn redirections_are_steps() {
    let write =
        |target: &str| Step::Redirect(Redirect { access: Access::Write, target: Word::Literal(target.to_owned()) });
    let read =
        |target: &str| Step::Redirect(Redirect { access: Access::Read, target: Word::Literal(target.to_owned()) });
    let cases = [
        ("a >b", vec![write("b")]),
        ("a >>b 2>c", vec![write("b"), write("c")]),
        ("a >|b <c", vec![write("b"), read("c")]),
        ("a <>b", vec![write("b")]),
        ("a 2>&1 >&2 <&- <&3", vec![]),
        ("a >&b", vec![write("b")]),
        ("(a) >b", vec![write("b")]),
        ("while a; do b; done <c >d", vec![read("c"), write("d")]),
        ("a &>b", vec![write("b")]),
    ];
    for (script, expected) in cases {
        let seen = parse(script).steps.into_iter().filter(|step| matches!(step, Step::Redirect(_))).collect::<Vec<_>>();
        assert_eq!(seen, expected, "{script}");
    }
}

#[test]
fn what_only_the_shell_knows_is_unclear() {
    let cases = [
        "$a",
        "a $b",
        "a `b`",
        "a {b,c}",
        "a $'\\x2d'",
        "f() { a; }",
        "a <<E\n$b\nE\n",
        "a <<\"E\\X\"\nb\nE\\X\n",
        "a <<<b",
        "a <(b)",
        "a=(b)",
        "~root/x",
    ];
    for script in cases {
        assert_ne!(parse(script).unclear, [], "{script}: {:?}", parse(script));
    }
    for script in ["a 'b$c' \\$d", "a | b && c > d", "a <<'E'\n$b\nE\n", "~/a", "a *.rs", "for x in a b; do c; done"] {
        assert_eq!(parse(script).unclear, [], "{script}");
    }
}

#[test]
fn limits_hold() {
    assert_eq!(parse(&"a ".repeat(20_000)).unclear, [Unclear::TooLong]);
    for (open, close) in [("(", ")"), ("$(", ")"), ("{ ", "; }"), ("${a:-", "}"), ("$((", "))")] {
        for count in [8, 9, 500, 5_000] {
            let script = format!("a {}b{}", open.repeat(count), close.repeat(count));
            assert_ne!(parse(&script).unclear, [], "{open} {count}");
        }
    }
    for script in ["a 99999999999>b", "a ~99999999999999999999", "a ~+99999999999999999999/x", "cd ~-9999999999999999"]
    {
        assert_ne!(parse(script).unclear, [], "{script}");
    }
    let deep = format!("{}a{}", "if b; then ".repeat(300), "; fi".repeat(300));
    assert_eq!(parse(&deep).unclear, [Unclear::TooDeep]);
}
