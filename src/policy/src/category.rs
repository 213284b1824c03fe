//! The kinds of effects a command may have.

use std::fmt;

use avfs_types::words;

words!(
    /// One kind of effect of a command; several may apply.
    Category, "category", {
        /// It only reads. Never together with `mutating`.
        ReadOnly = "read_only",
        /// It may write to the workspace.
        Mutating = "mutating",
        /// It may delete or overwrite existing files; always `mutating` too.
        Destructive = "destructive",
        /// It needs the network.
        Networked = "networked",
        /// It is meant to reach beyond the sandbox: another user, the host's services, files outside.
        HostEscapeRisk = "host_escape_risk",
        /// It interacts with a user at a terminal.
        Interactive = "interactive",
    }
);

/// A set of categories.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Categories(u8);

impl Categories {
    pub const NONE: Self = Self(0);
    /// All categories.
    pub const ALL: Self = {
        let (mut all, mut at) = (Self::NONE, 0);
        while at < Category::ALL.len() {
            all = all.with(Category::ALL[at]);
            at += 1;
        }
        all
    };

    #[must_use]
    pub const fn of(category: Category) -> Self {
        Self(1 << category as u8)
    }

    #[must_use]
    pub const fn with(self, category: Category) -> Self {
        self.union(Self::of(category))
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub const fn contains(self, category: Category) -> bool {
        self.0 & Self::of(category).0 != 0
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In the order of [`Category::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Category> {
        Category::ALL.iter().copied().filter(move |category| self.contains(*category))
    }

    /// The categories of several commands together: they are read-only if each of them is.
    #[must_use]
    pub fn together(all: impl IntoIterator<Item = Self>) -> Self {
        let union = all.into_iter().fold(Self::NONE, Self::union);
        if union.contains(Category::Mutating) {
            Self(union.0 & !Self::of(Category::ReadOnly).0)
        } else {
            union
        }
    }
}

impl FromIterator<Category> for Categories {
    fn from_iter<I: IntoIterator<Item = Category>>(categories: I) -> Self {
        categories.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Categories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|category| category.word())).finish()
    }
}
