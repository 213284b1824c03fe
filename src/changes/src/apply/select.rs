//! Selects changes by patterns on their paths.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use avfs_types::diagnose::shell_word;
use avfs_types::glob;
use avfs_types::path::TreePath;
use avfs_vault::set_ids::SetIds;

use super::way::Way;
use crate::apply::error::ApplyError;

/// Path patterns: `*` matches within a name, `**` across names. A pattern without a slash matches a name in any
/// directory. A pattern that matches a directory includes everything in it.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Option<GlobSet>,
    exclude: GlobSet,
    patterns: [Vec<String>; 2],
    /// Whether the directories on the way to the last path match each set.
    matched: RefCell<Way<[bool; 2]>>,
}

/// The selection of an apply, as recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    include: Vec<String>,
    exclude: Vec<String>,
    keep_setid: bool,
}

impl Choice {
    pub fn read(text: &str) -> Result<Self, ApplyError> {
        serde_json::from_str(text).map_err(|_| ApplyError::Unreadable)
    }

    pub fn has_filter(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn filter(&self) -> Result<Filter, ApplyError> {
        Filter::new(&self.include, &self.exclude)
    }

    /// The options of `avfs apply` that make this choice, each after a space.
    pub fn options(&self) -> String {
        let patterns = |option: &str, patterns: &[String]| -> String {
            patterns.iter().map(|pattern| format!(" {option} {}", shell_word(pattern.as_ref()))).collect()
        };
        let keep_setid = if self.keep_setid { " --keep-setid" } else { "" };
        patterns("--include", &self.include) + &patterns("--exclude", &self.exclude) + keep_setid
    }

    pub fn set_ids(&self) -> SetIds {
        if self.keep_setid { SetIds::Kept } else { SetIds::Stripped }
    }
}

impl Filter {
    /// An empty `include` selects everything.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, ApplyError> {
        let patterns = [include.to_vec(), exclude.to_vec()];
        let include = if include.is_empty() { None } else { Some(set(include)?) };
        Ok(Self { include, exclude: set(exclude)?, patterns, matched: RefCell::default() })
    }

    pub(super) fn choice(&self, set_ids: SetIds) -> Choice {
        let [include, exclude] = self.patterns.clone();
        Choice { include, exclude, keep_setid: set_ids == SetIds::Kept }
    }

    #[must_use]
    pub fn accepts(&self, path: &TreePath) -> bool {
        if self.include.is_none() && self.exclude.is_empty() {
            return true;
        }
        let hit =
            |set: &GlobSet, path: &TreePath| set.is_match(Path::new(OsStr::from_bytes(path.as_bytes())));
        let hits = |path: &TreePath, [included, excluded]: [bool; 2]| {
            let is_included = included || self.include.as_ref().is_none_or(|set| hit(set, path));
            Ok::<_, Infallible>([is_included, excluded || hit(&self.exclude, path)])
        };
        let root = TreePath::root();
        let of_root = [self.include.as_ref().is_none_or(|set| hit(set, &root)), hit(&self.exclude, &root)];
        if path.is_root() {
            return of_root == [true, false];
        }
        let Ok(matched) = self.matched.borrow_mut().value(path, [self.include.is_none(), false], hits);
        matched == [true, false]
    }
}

fn set(patterns: &[String]) -> Result<GlobSet, ApplyError> {
    let bad = |pattern: &str, error: &globset::Error| ApplyError::BadPattern {
        pattern: pattern.chars().take(80).collect(),
        detail: error.kind().to_string(),
    };
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let trimmed = pattern.trim_start_matches("./").trim_end_matches('/');
        let anchored = match trimmed.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None if trimmed.contains('/') => trimmed.to_owned(),
            None => format!("**/{trimmed}"),
        };
        let glob = glob::of_path(&anchored);
        builder.add(glob.map_err(|error| bad(pattern, &error))?);
    }
    builder.build().map_err(|error| bad(&patterns.join(" "), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_directories() {
        let accepts = |include: &[&str], exclude: &[&str], path: &str| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let filter = Filter::new(&owned(include), &owned(exclude)).unwrap();
            filter.accepts(&TreePath::parse(path.as_bytes()).unwrap())
        };
        assert!(accepts(&[], &[], "a/b"));
        assert!(accepts(&["*.rs"], &[], "src/deep/main.rs"));
        assert!(!accepts(&["*.rs"], &[], "src/main.c"));
        assert!(accepts(&["src"], &[], "src/deep/main.c"));
        assert!(accepts(&["src/"], &[], "src/x"));
        assert!(!accepts(&["/x"], &[], "src/x"));
        assert!(!accepts(&["src/*"], &[], "other/src/x"));
        assert!(accepts(&["src/**"], &[], "src/a/b"));
        assert!(!accepts(&[], &["target"], "a/target/b"));
        assert!(!accepts(&["src"], &["*.tmp"], "src/a.tmp"));
        assert!(accepts(&[], &["x"], ""));
        assert!(!accepts(&["x"], &[], ""));
        assert!(matches!(Filter::new(&["[".to_owned()], &[]), Err(ApplyError::BadPattern { .. })));
    }
}
