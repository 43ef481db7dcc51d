//! Reads one Rust file for the checks: its syntax tree, and what a tree does not show because macros hide it, the
//! paths and macro calls in its tokens. Comments and strings are not tokens, so a check never mistakes them for code.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::{Check, Problem};

/// A parsed file.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) syntax: syn::File,
    pub(super) paths: Vec<PathUse>,
    pub(super) macros: Vec<MacroUse>,
    test_lines: Vec<(usize, usize)>,
}

/// A path as written, a `use` tree taken apart: `use std::{fs, io}` gives `std::fs` and `std::io`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathUse {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
}

/// A call of a macro, by the last segment of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MacroUse {
    pub(super) line: usize,
    pub(super) name: String,
}

impl<'a> Source<'a> {
    pub(super) fn parse(file: &'a str, text: &str) -> Result<Self, Problem> {
        let broken = |line, error: String| Problem::new(Check::Parse, file, line, error);
        let tokens: TokenStream = text
            .parse()
            .map_err(|error: proc_macro2::LexError| broken(error.span().start().line, error.to_string()))?;
        let mut scanner = Scanner::default();
        scanner.scan(tokens.clone(), &[]);
        let syntax: syn::File =
            syn::parse2(tokens).map_err(|error| broken(error.span().start().line, error.to_string()))?;
        let mut tests = TestLines::default();
        tests.visit_file(&syntax);
        Ok(Self { file, syntax, paths: scanner.paths, macros: scanner.macros, test_lines: tests.ranges })
    }

    /// Whether the line belongs to a test: in a test file, or inside an item that only tests compile.
    pub(super) fn is_test(&self, line: usize) -> bool {
        is_test_file(self.file) || self.test_lines.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// The names of the functions that belong to tests. A suite that runs against several implementations has no
    /// test attribute on its functions, so the place decides.
    pub(super) fn test_functions(&self) -> Vec<String> {
        let mut finder = Functions { source: self, names: Vec::new() };
        finder.visit_file(&self.syntax);
        finder.names
    }
}

struct Functions<'a> {
    source: &'a Source<'a>,
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if self.source.is_test(item.sig.fn_token.span.start().line) {
            self.names.push(item.sig.ident.to_string());
        }
        visit::visit_item_fn(self, item);
    }
}

impl PathUse {
    /// Whether the path ends with these segments.
    pub(super) fn ends_with(&self, tail: &[&str]) -> bool {
        self.segments.len() >= tail.len() && self.segments.iter().rev().zip(tail.iter().rev()).all(|(a, b)| a == b)
    }

    /// Whether the path begins with these segments.
    pub(super) fn starts_with(&self, head: &[&str]) -> bool {
        self.segments.len() >= head.len() && self.segments.iter().zip(head).all(|(a, b)| a == b)
    }
}

/// A file of tests: `tests.rs`, anything below a `tests/` folder, the test doubles, and examples.
pub(super) fn is_test_file(file: &str) -> bool {
    let in_folder = |folder: &str| file.starts_with(&format!("{folder}/")) || file.contains(&format!("/{folder}/"));
    file.ends_with("/tests.rs")
        || in_folder("tests")
        || in_folder("benches")
        || in_folder("examples")
        || file.starts_with("crates/testkit/")
}

#[derive(Default)]
struct Scanner {
    paths: Vec<PathUse>,
    macros: Vec<MacroUse>,
}

impl Scanner {
    /// Walks one level of tokens; `prefix` is the path in front of the braces of a `use` tree.
    fn scan(&mut self, tokens: TokenStream, prefix: &[String]) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            at = match &trees[at] {
                TokenTree::Ident(_) => self.path(&trees, at, prefix),
                TokenTree::Group(group) => {
                    self.scan(group.stream(), &[]);
                    at + 1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at + 1,
            };
        }
    }

    /// Reads the path that begins at `at` and returns where it ends.
    fn path(&mut self, trees: &[TokenTree], at: usize, prefix: &[String]) -> usize {
        let line = trees[at].span().start().line;
        let mut segments = prefix.to_vec();
        segments.push(trees[at].to_string());
        let mut next = at + 1;
        while is_colons(trees, next) {
            match trees.get(next + 2) {
                Some(TokenTree::Ident(segment)) => {
                    segments.push(segment.to_string());
                    next += 3;
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.scan(group.stream(), &segments);
                    return next + 3;
                }
                _ => break,
            }
        }
        if let (Some(TokenTree::Punct(mark)), Some(TokenTree::Group(_))) = (trees.get(next), trees.get(next + 1))
            && mark.as_char() == '!'
        {
            let name = segments.last().cloned().unwrap_or_default();
            self.macros.push(MacroUse { line, name });
            return next + 1;
        }
        // `output.stdout` is a field and not a path.
        let is_member = matches!(at.checked_sub(1).map(|before| &trees[before]),
            Some(TokenTree::Punct(dot)) if dot.as_char() == '.');
        if !is_member {
            self.paths.push(PathUse { line, segments });
        }
        next
    }
}

fn is_colons(trees: &[TokenTree], at: usize) -> bool {
    match (trees.get(at), trees.get(at + 1)) {
        (Some(TokenTree::Punct(first)), Some(TokenTree::Punct(second))) => {
            first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':'
        }
        _ => false,
    }
}

/// The line ranges of items under `#[cfg(test)]`.
#[derive(Default)]
struct TestLines {
    ranges: Vec<(usize, usize)>,
}

impl TestLines {
    fn add(&mut self, attributes: &[syn::Attribute], first: usize, last: usize) {
        if attributes.iter().any(is_cfg_test) {
            self.ranges.push((first, last));
        }
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if let Some((brace, _)) = &item.content {
            let last = brace.span.close().end().line;
            self.add(&item.attrs, item.mod_token.span.start().line, last);
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let last = item.block.brace_token.span.close().end().line;
        self.add(&item.attrs, item.sig.fn_token.span.start().line, last);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let last = item.brace_token.span.close().end().line;
        self.add(&item.attrs, item.impl_token.span.start().line, last);
        visit::visit_item_impl(self, item);
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::Path(_) | syn::Meta::NameValue(_) => false,
    }
}
