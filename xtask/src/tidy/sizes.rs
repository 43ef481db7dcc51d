//! How long a file and a function may be. What is longer is split, or written down in `exceptions.rs` with a reason.

use syn::visit::{self, Visit};

use super::scan::{Source, is_test_file};
use super::{Check, Problem};

/// A reader can keep this much in mind; beyond it a file owns more than one thing.
const MAX_FILE: usize = 800;
/// Tests are read one at a time, so their file may be longer.
const MAX_TEST_FILE: usize = 1500;
/// The `main.rs` of a program parses arguments and calls one function.
const MAX_MAIN: usize = 60;
/// From the `fn` to the closing brace, comments included: two screens.
const MAX_FUNCTION: usize = 100;

pub(super) fn file(file: &str, text: &str) -> Vec<Problem> {
    let lines = text.lines().count();
    let limit = if file.starts_with("bins/") && file.ends_with("/src/main.rs") {
        MAX_MAIN
    } else if is_test_file(file) {
        MAX_TEST_FILE
    } else {
        MAX_FILE
    };
    if lines <= limit {
        return Vec::new();
    }
    let message = format!("{lines} lines, at most {limit}: split it by what its parts own");
    vec![Problem::new(Check::FileSize, file, 0, message).sized(lines)]
}

pub(super) fn functions(source: &Source<'_>) -> Vec<Problem> {
    let mut finder = Finder { file: source.file, problems: Vec::new() };
    finder.visit_file(&source.syntax);
    finder.problems
}

struct Finder<'a> {
    file: &'a str,
    problems: Vec<Problem>,
}

impl Finder<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line - first + 1;
        if lines > MAX_FUNCTION {
            let name = signature.ident.to_string();
            let message = format!("function `{name}` has {lines} lines, at most {MAX_FUNCTION}");
            self.problems.push(Problem::new(Check::FunctionSize, self.file, first, message).about(&name).sized(lines));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}
