//! Calls out of methods: the one place where a call is declared is its method.

/// Declares methods of [`Objects`](super::objects::Objects) that the suite can call: from each come
/// a variant of the request `$calls` and the methods of [`Agent`](crate::rpc::client::Agent) and
/// [`Begin`](crate::rpc::client::Begin) that send it.
macro_rules! calls {
    ($calls:ident: $(
        $(#[$doc:meta])*
        fn $name:ident(&mut $this:ident $(, $param:ident: $type:ty)* $(,)?)
            -> io::Result<$answer:ty> $body:block
    )*) => {
        /// Calls, as they travel.
        #[allow(non_camel_case_types)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) enum $calls { $($name { $($param: $type),* },)* }

        impl $calls {
            /// Does what is asked, and sends the answer.
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

        // Each call can be made in both ways.
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
