//! Layers of a request: what one of them does not say, the one beneath it says.

use std::collections::BTreeMap;

use serde_json::Value;

/// A value that may be left unsaid.
pub trait Layer {
    /// This value, or that of the layer beneath it; of lists and flags both.
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
/// what clap is told about it, between brackets; and for an option, after `=>`, what the policy makes of it: the keys
/// that are about it, or why it needs none.
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
            /// Each option, and what the profile `agent` and the caps make of it.
            pub const EFFECTS: &'static [(&'static str, &'static str)] =
                &[$($((stringify!($field), $effect),)?)+];

            /// What this says, and where it says nothing what `below` says.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($field: $crate::spec::layer::Layer::over(self.$field, below.$field)),+ }
            }
        }
    };
}
pub(super) use options;
