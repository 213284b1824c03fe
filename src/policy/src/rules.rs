//! One rule: the commands it matches, and its verdict on them.
//!
//! An unknown word may have any value: such a match is [`Fit::May`], and the engine lets it tighten but never loosen.

use globset::{GlobBuilder, GlobMatcher};

use avfs_request::NetMode;
use avfs_types::glob;

use crate::category::Categories;
use crate::decision::Action;
use crate::examples::Example;
use crate::reading::{Asked, Judged, Word};
use crate::verdict::{Fit, RulePlace};

/// A compiled glob.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matchers: Vec<GlobMatcher>,
}

impl Pattern {
    /// For arguments and names: `*` matches any text.
    pub fn of_text(text: &str) -> Result<Self, globset::Error> {
        let matcher = GlobBuilder::new(text).build()?.compile_matcher();
        Ok(Self { text: text.to_owned(), matchers: vec![matcher] })
    }

    /// For paths: `*` stays within one directory, and `/srv/**` matches `/srv` too.
    pub fn of_path(text: &str) -> Result<Self, globset::Error> {
        let top = text.strip_suffix("/**").filter(|top| !top.is_empty());
        let compile = |text: &str| glob::of_path(text).map(|glob| glob.compile_matcher());
        let matchers = std::iter::once(text).chain(top).map(compile).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), matchers })
    }

    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.matchers.iter().any(|matcher| matcher.is_match(text))
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A condition on the arguments after the prefix.
#[derive(Clone, Debug)]
pub enum ArgPattern {
    /// Some argument matches.
    Some(Pattern),
    /// No argument matches.
    None(Pattern),
}

/// The conditions of a rule; an empty one is always met.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The alternatives for each of the first words.
    pub prefix: Vec<Vec<String>>,
    pub args: Vec<ArgPattern>,
    /// All of them must apply.
    pub categories: Categories,
    pub fork: Option<Pattern>,
    pub cwd: Option<Pattern>,
    pub workspace: Option<Pattern>,
    /// The widest network that the request may ask for. A rule that allows grants it to a request that asks for none.
    pub net: Option<NetMode>,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    pub place: RulePlace,
    pub when: Conditions,
    pub action: Action,
    pub reason: Option<String>,
    pub examples: Vec<Example>,
}

/// How the first words of a command match a prefix.
enum Start<'w> {
    Other,
    /// One of them is unknown. It may expand to several words or none, so the positions of all later words are
    /// unknown.
    Open,
    Meant {
        fit: Fit,
        later: &'w [Word],
    },
}

impl Conditions {
    /// Whether a command of a request matches.
    #[must_use]
    pub fn fit(&self, asked: &Asked<'_>, command: &Judged) -> Fit {
        if self.holds_around(asked) { self.fit_command(command) } else { Fit::No }
    }

    /// Whether the command matches, in any context.
    #[must_use]
    pub fn fit_command(&self, command: &Judged) -> Fit {
        if self.categories.iter().any(|category| !command.categories.contains(category)) {
            return Fit::No;
        }
        match self.fit_prefix(&command.words) {
            Start::Other => Fit::No,
            Start::Open => Fit::May,
            Start::Meant { fit, later } => {
                self.args.iter().map(|pattern| pattern.fit(later)).fold(fit, Fit::min)
            }
        }
    }

    fn holds_around(&self, asked: &Asked<'_>) -> bool {
        let holds =
            |pattern: &Option<Pattern>, text: &str| pattern.as_ref().is_none_or(|it| it.matches(text));
        let fork = match (&self.fork, asked.fork) {
            (None, _) => true,
            (Some(pattern), Some(fork)) => pattern.matches(fork.as_str()),
            // An ephemeral fork has no name that a rule could refer to.
            (Some(_), None) => false,
        };
        fork && self.net.as_ref().is_none_or(|net| net.covers(asked.net))
            && holds(&self.cwd, &asked.cwd.to_string_lossy())
            && holds(&self.workspace, &asked.project.to_string_lossy())
    }

    fn fit_prefix<'w>(&self, words: &'w [Word]) -> Start<'w> {
        let mut fit = Fit::Sure;
        for (at, alternatives) in self.prefix.iter().enumerate() {
            match words.get(at) {
                None => return Start::Other,
                Some(Word::Unknown(_)) => return Start::Open,
                Some(Word::Known(word)) => {
                    let best = alternatives.iter().map(|wanted| fit_word(at, wanted, word)).max();
                    fit = fit.min(best.unwrap_or(Fit::No));
                    if fit == Fit::No {
                        return Start::Other;
                    }
                }
            }
        }
        match words.first() {
            // It is unknown which word is the program, and which are its arguments.
            Some(Word::Unknown(_)) if !self.args.is_empty() => Start::Open,
            // Without a prefix, the program itself is still not an argument.
            Some(_) | None => {
                Start::Meant { fit, later: words.get(self.prefix.len().max(1)..).unwrap_or_default() }
            }
        }
    }
}

/// The program may be written with its directory. Only the host knows whether that is the intended program.
fn fit_word(at: usize, wanted: &str, word: &str) -> Fit {
    if wanted == word {
        return Fit::Sure;
    }
    match word.rsplit_once('/') {
        Some((_, name)) if at == 0 && name == wanted => Fit::May,
        Some(_) | None => Fit::No,
    }
}

impl ArgPattern {
    fn fit(&self, arguments: &[Word]) -> Fit {
        let found = |pattern: &Pattern| {
            let of = |word: &Word| match word {
                Word::Known(text) if pattern.matches(text) => Fit::Sure,
                Word::Known(_) => Fit::No,
                Word::Unknown(_) => Fit::May,
            };
            arguments.iter().map(of).max().unwrap_or(Fit::No)
        };
        match self {
            Self::Some(pattern) => found(pattern),
            Self::None(pattern) => match found(pattern) {
                Fit::No => Fit::Sure,
                Fit::May => Fit::May,
                Fit::Sure => Fit::No,
            },
        }
    }
}

impl Rule {
    /// Whether the rule applies to a command of a request. One that allows a network is meant for the program of that
    /// name, and not for another one that a variable of the request puts in its place.
    #[must_use]
    pub fn fit(&self, asked: &Asked<'_>, command: &Judged) -> Fit {
        let gives_net = self.when.net.as_ref().is_some_and(|net| *net != NetMode::None);
        match gives_net && self.action <= Action::AllowWithCheckpoint && command.is_redirected {
            true => Fit::No,
            false => self.when.fit(asked, command),
        }
    }

    /// The categories that the rule decides. A rule about a category says nothing about other effects of a command.
    #[must_use]
    pub fn answers_for(&self) -> Categories {
        if self.when.categories.is_empty() { Categories::ALL } else { self.when.categories }
    }
}
