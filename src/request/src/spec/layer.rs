//! Layers of a request: a field that one layer leaves unset is taken from the layer below it.

use std::collections::BTreeMap;

use serde_json::Value;

/// A value that may be unset.
pub trait Layer {
    /// Returns this value, or the value of the layer below if this one is unset; lists and flags are combined.
    #[must_use]
    fn over(self, below: Self) -> Self;
}

impl<T> Layer for Option<T> {
    fn over(self, below: Self) -> Self {
        self.or(below)
    }
}

impl<T> Layer for Vec<T> {
    fn over(mut self, below: Self) -> Self {
        self.extend(below);
        self
    }
}

impl<T> Layer for BTreeMap<String, T> {
    fn over(self, mut below: Self) -> Self {
        below.extend(self);
        below
    }
}

impl Layer for bool {
    fn over(self, below: Self) -> Self {
        self || below
    }
}

impl Layer for Value {
    fn over(self, below: Self) -> Self {
        if self.is_null() { below } else { self }
    }
}

/// Declares a struct of options. A field has its documentation, which is its help and its description in the schema;
/// its clap attributes, in brackets; and for an option, after `=>`, its effect on the policy: the policy keys that
/// apply to it, or why it needs none.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* [$($arg:tt)*] pub $field:ident: $type:ty $(=> $effect:literal)?,)+
        }
    ) => {
        $(#[$meta])*
        #[cfg_attr(feature = "clap", derive(clap::Args))]
        #[cfg_attr(feature = "clap", group(skip))]
        pub struct $name {
            $($(#[$field_meta])* #[cfg_attr(feature = "clap", arg($($arg)*))] pub $field: $type,)+
        }

        impl $name {
            /// Each option, and its effect on the policy profile `agent` and the caps.
            pub const EFFECTS: &'static [(&'static str, &'static str)] =
                &[$($((stringify!($field), $effect),)?)+];

            /// Returns these options, with unset fields taken from `below`.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($field: $crate::spec::layer::Layer::over(self.$field, below.$field)),+ }
            }
        }
    };
}
pub(super) use options;
