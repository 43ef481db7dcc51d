//! From the syntax tree to the list of what a script does.

use brush_parser::ast::{
    self, CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect,
};
use brush_parser::{ParserImpl, ParserOptions, Token};

use super::{Access, Assignment, Command, Redirect, Script, Step, Unclear, limits, word};

/// A POSIX shell, with nothing that only some shells know.
pub(super) const OPTIONS: ParserOptions = ParserOptions {
    enable_extended_globbing: false,
    posix_mode: true,
    sh_mode: true,
    tilde_expansion_at_word_start: false,
    tilde_expansion_after_colon: false,
    parser_impl: ParserImpl::Peg,
};

/// The larger language of other shells, tried on what is no script for a POSIX one.
const OTHER: ParserOptions = ParserOptions { posix_mode: false, sh_mode: false, ..OPTIONS };

/// How deep substitutions inside substitutions are followed; what lies deeper is unclear anyway.
const MAX_SUBSTITUTION: usize = 4;

/// How many steps a script may have: more than a person reads before answering.
const MAX_STEPS: usize = 1024;

pub(super) fn parse(text: &str, depth: usize) -> Script {
    let mut walker = Walker { depth, ..Walker::default() };
    if let Err(unclear) = limits::check(text) {
        walker.script.unclear.push(unclear);
        return walker.script;
    }
    match tree(text, &OPTIONS) {
        Ok(program) => walker.program(&program),
        Err(unclear) => {
            walker.script.unclear.push(unclear);
            // It stays unclear; what is dangerous in it is found all the same where another shell could read it.
            if let Ok(program) = tree(text, &OTHER) {
                walker.program(&program);
                walker.script.single = false;
            }
        }
    }
    walker.script
}

fn tree(text: &str, options: &ParserOptions) -> Result<ast::Program, Unclear> {
    let tokens =
        brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()).map_err(|_| Unclear::Grammar)?;
    for (index, token) in tokens.iter().enumerate() {
        if let Token::Word(word, _) = token
            && word.bytes().all(|b| b.is_ascii_digit())
            && (word.is_empty() || word.len() > 8)
            && let Some(Token::Operator(next, _)) = tokens.get(index + 1)
            && next.starts_with(['<', '>'])
        {
            // The parser turns such a word into a number that has to fit.
            return Err(Unclear::Grammar);
        }
    }
    brush_parser::parse_tokens(&tokens, options).map_err(|_| Unclear::Grammar)
}

#[derive(Debug, Default)]
struct Walker {
    script: Script,
    depth: usize,
    loops: usize,
    fed: usize,
}

impl Walker {
    fn program(&mut self, program: &ast::Program) {
        let mut simple = 0_usize;
        for list in &program.complete_commands {
            for item in &list.0 {
                let ast::CompoundListItem(and_or, separator) = item;
                let alone = and_or.additional.is_empty()
                    && !and_or.first.bang
                    && and_or.first.timed.is_none()
                    && matches!(and_or.first.seq.as_slice(), [ast::Command::Simple(only)] if !redirects(only))
                    && matches!(separator, ast::SeparatorOperator::Sequence);
                simple += if alone { 1 } else { 2 };
            }
            self.list(list);
        }
        self.script.single = simple == 1;
    }

    fn list(&mut self, list: &CompoundList) {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            self.pipeline(&and_or.first);
            for next in &and_or.additional {
                match next {
                    ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => self.pipeline(pipeline),
                }
            }
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) {
        for (index, command) in pipeline.seq.iter().enumerate() {
            let fed = usize::from(index > 0);
            self.fed += fed;
            self.command(command);
            self.fed -= fed;
        }
    }

    fn command(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, redirects) => {
                let fed = usize::from(redirects.as_ref().is_some_and(|list| list.0.iter().any(feeds)));
                self.redirects(redirects.as_ref());
                self.fed += fed;
                self.compound(compound);
                self.fed -= fed;
            }
            ast::Command::Function(function) => {
                self.unclear(Unclear::Function(word::shorten(&function.fname.value)));
                self.compound(&function.body.0);
                self.redirects(function.body.1.as_ref());
            }
            ast::Command::ExtendedTest(_, redirects) => {
                self.unclear(Unclear::Dialect("[[".to_owned()));
                self.redirects(redirects.as_ref());
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(group) => self.list(&group.list),
            CompoundCommand::ForClause(clause) => {
                for value in clause.values.iter().flatten() {
                    self.word(value);
                }
                self.repeat(&[&clause.body.list]);
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.repeat(&[&clause.0, &clause.1.list]);
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for part in clause.elses.iter().flatten() {
                    if let Some(condition) = &part.condition {
                        self.list(condition);
                    }
                    self.list(&part.body);
                }
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(pattern);
                    }
                    if let Some(list) = &case.cmd {
                        self.list(list);
                    }
                }
            }
            CompoundCommand::Arithmetic(_) => self.unclear(Unclear::Dialect("((".to_owned())),
            CompoundCommand::ArithmeticForClause(clause) => {
                self.unclear(Unclear::Dialect("for ((".to_owned()));
                self.repeat(&[&clause.body.list]);
            }
            CompoundCommand::Coprocess(process) => {
                self.unclear(Unclear::Dialect("coproc".to_owned()));
                self.command(&process.body);
            }
        }
    }

    fn repeat(&mut self, lists: &[&CompoundList]) {
        self.loops += 1;
        for list in lists {
            self.list(list);
        }
        self.loops -= 1;
    }

    fn simple(&mut self, simple: &ast::SimpleCommand) {
        let mut command = Command { repeated: self.loops > 0, ..Command::default() };
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        let fed = prefix.clone().chain(suffix.clone()).any(|item| match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => feeds(redirect),
            CommandPrefixOrSuffixItem::Word(_)
            | CommandPrefixOrSuffixItem::AssignmentWord(..)
            | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => false,
        });
        command.fed = fed || self.fed > 0;
        for item in prefix {
            match item {
                CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    let assignment = self.assignment(assignment);
                    command.assignments.push(assignment);
                }
                CommandPrefixOrSuffixItem::Word(word) => {
                    let word = self.word(word);
                    command.words.push(word);
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(_, shell) => self.substituted(shell),
            }
        }
        if let Some(name) = &simple.word_or_name {
            let word = self.word(name);
            command.words.push(word);
        }
        for item in suffix {
            match item {
                CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
                // Behind the name it is an ordinary argument.
                CommandPrefixOrSuffixItem::AssignmentWord(_, word) | CommandPrefixOrSuffixItem::Word(word) => {
                    let word = self.word(word);
                    command.words.push(word);
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(_, shell) => self.substituted(shell),
            }
        }
        self.step(Step::Command(command));
    }

    fn substituted(&mut self, shell: &ast::SubshellCommand) {
        self.unclear(Unclear::Dialect("<(".to_owned()));
        self.list(&shell.list);
    }

    fn assignment(&mut self, assignment: &ast::Assignment) -> Assignment {
        let name = match &assignment.name {
            ast::AssignmentName::VariableName(name) => name.clone(),
            ast::AssignmentName::ArrayElementName(name, _) => {
                self.unclear(Unclear::Dialect(word::shorten(name)));
                name.clone()
            }
        };
        let value = match &assignment.value {
            ast::AssignmentValue::Scalar(word) => self.word(word),
            ast::AssignmentValue::Array(_) => {
                self.unclear(Unclear::Dialect(word::shorten(&name)));
                super::Word::Unknown(String::new())
            }
        };
        if assignment.append {
            self.unclear(Unclear::Dialect(format!("{name}+=")));
        }
        Assignment { name, value }
    }

    fn redirects(&mut self, list: Option<&ast::RedirectList>) {
        for redirect in list.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, kind, target) => {
                let access = match kind {
                    IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => Access::Read,
                    IoFileRedirectKind::Write
                    | IoFileRedirectKind::Append
                    | IoFileRedirectKind::ReadAndWrite
                    | IoFileRedirectKind::Clobber
                    | IoFileRedirectKind::DuplicateOutput => Access::Write,
                };
                self.target(access, target);
            }
            IoRedirect::HereDocument(_, document) => self.document(document),
            IoRedirect::HereString(_, word) => {
                self.unclear(Unclear::Dialect("<<<".to_owned()));
                self.word(word);
            }
            IoRedirect::OutputAndError(word, _) => {
                self.unclear(Unclear::Dialect("&>".to_owned()));
                let target = self.word(word);
                self.step(Step::Redirect(Redirect { access: Access::Write, target }));
            }
        }
    }

    fn target(&mut self, access: Access, target: &IoFileRedirectTarget) {
        match target {
            IoFileRedirectTarget::Filename(word) => {
                let target = self.word(word);
                self.step(Step::Redirect(Redirect { access, target }));
            }
            IoFileRedirectTarget::Fd(_) => {}
            IoFileRedirectTarget::Duplicate(word) => {
                let target = self.word(word);
                // `>&2` and `>&-` open nothing; with a name, some shells open a file.
                let descriptor = target
                    .literal()
                    .is_some_and(|text| text == "-" || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())));
                if !descriptor {
                    self.unclear(Unclear::Dialect(format!("&{}", word::shorten(&word.value))));
                    self.step(Step::Redirect(Redirect { access, target }));
                }
            }
            IoFileRedirectTarget::ProcessSubstitution(_, shell) => self.substituted(shell),
        }
    }

    fn document(&mut self, document: &ast::IoHereDocument) {
        let tag = document.here_end.value.as_str();
        let inner = ['\'', '"']
            .iter()
            .find_map(|quote| tag.strip_prefix(*quote)?.strip_suffix(*quote))
            .or_else(|| tag.strip_prefix('\\'))
            .unwrap_or(tag);
        if inner.is_empty() || !inner.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.unclear(Unclear::Dialect(format!("<<{}", word::shorten(tag))));
        }
        if !document.requires_expansion {
            return;
        }
        let body = document.doc.value.as_str();
        if body.contains(['$', '`']) || body.contains("\\\n") {
            self.unclear(Unclear::Expansion("a here-document".to_owned()));
            for script in word::document_substitutions(body) {
                self.nested(&script);
            }
        }
    }

    fn word(&mut self, word: &ast::Word) -> super::Word {
        let resolved = word::resolve(&word.value);
        if let Some(unclear) = resolved.unclear {
            self.unclear(unclear);
        }
        for script in &resolved.substitutions {
            self.nested(script);
        }
        resolved.word
    }

    /// Takes the script of a substitution apart, too: it runs whatever the word around it becomes.
    fn nested(&mut self, text: &str) {
        if self.depth >= MAX_SUBSTITUTION {
            self.unclear(Unclear::TooDeep);
            return;
        }
        let inner = parse(text, self.depth + 1);
        for unclear in inner.unclear {
            self.unclear(unclear);
        }
        for step in inner.steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        if self.script.steps.len() >= MAX_STEPS {
            self.unclear(Unclear::TooLong);
        } else {
            self.script.steps.push(step);
        }
    }

    fn unclear(&mut self, unclear: Unclear) {
        if !self.script.unclear.contains(&unclear) && self.script.unclear.len() < MAX_UNCLEAR {
            self.script.unclear.push(unclear);
        }
    }
}

/// How many reasons are kept: one already decides, and nobody reads a hundred.
const MAX_UNCLEAR: usize = 16;

fn redirects(simple: &ast::SimpleCommand) -> bool {
    let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
    prefix.chain(suffix).any(|item| matches!(item, CommandPrefixOrSuffixItem::IoRedirect(_)))
}

/// Whether a redirection gives its command something to read.
fn feeds(redirect: &IoRedirect) -> bool {
    match redirect {
        IoRedirect::File(_, kind, _) => match kind {
            IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput | IoFileRedirectKind::ReadAndWrite => true,
            IoFileRedirectKind::Write
            | IoFileRedirectKind::Append
            | IoFileRedirectKind::Clobber
            | IoFileRedirectKind::DuplicateOutput => false,
        },
        IoRedirect::HereDocument(..) | IoRedirect::HereString(..) => true,
        IoRedirect::OutputAndError(..) => false,
    }
}
