//! Enums whose variants have names: [`names!`](crate::names).

/// Lists an enum's variants and their names: `ALL`, in this order, and `name`.
///
/// ```
/// #[derive(Clone, Copy)]
/// enum State { Stored, Accepted }
/// hoop_units::names!(State: Stored = "stored", Accepted = "accepted");
/// assert_eq!(State::ALL.map(State::name), ["stored", "accepted"]);
/// ```
#[macro_export]
macro_rules! names {
    ($type:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}
