//! Declares calls by their methods: a call has no other declaration.

/// Declares methods of [`Objects`](super::objects::Objects) that the suite can call. Each method
/// gets a variant of the request `$calls`, and methods of [`Agent`](crate::rpc::client::Agent) and
/// [`Begin`](crate::rpc::client::Begin) that send it.
macro_rules! calls {
    ($calls:ident: $(
        $(#[$doc:meta])*
        fn $name:ident(&mut $this:ident $(, $param:ident: $type:ty)* $(,)?)
            -> io::Result<$answer:ty> $body:block
    )*) => {
        /// Calls, as they are sent.
        #[allow(non_camel_case_types)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) enum $calls { $($name { $($param: $type),* },)* }

        impl $calls {
            /// Executes the call, and sends the result.
            pub(super) fn serve(self, on: &mut Objects, to: &mut impl io::Write) -> io::Result<()> {
                match self {
                    $(Self::$name { $($param),* } => {
                        $crate::rpc::frame::answer(to, on.$name($($param),*))
                    })*
                }
            }
        }

        impl Objects {
            $($(#[$doc])* fn $name(&mut $this $(, $param: $type)*) -> io::Result<$answer> $body)*
        }

        // Each call can be made in two ways.
        #[allow(dead_code)]
        impl $crate::rpc::client::Agent {
            $($(#[$doc])* pub(crate) fn $name(&self $(, $param: $type)*)
                -> Result<$answer, $crate::rpc::client::CallError>
            {
                self.begin().$name($($param),*)?.finish()
            })*
        }

        impl<'a> $crate::rpc::client::Begin<'a> {
            $($(#[$doc])* pub(crate) fn $name(self $(, $param: $type)*)
                -> Result<$crate::rpc::client::Pending<'a, $answer>, $crate::rpc::client::CallError>
            {
                self.ask(&super::Request::$calls($calls::$name { $($param),* }))
            })*
        }
    };
}

pub(super) use calls;
