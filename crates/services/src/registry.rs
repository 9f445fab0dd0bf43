//! The types of the built-in services.

use std::sync::Arc;

use levada_service::Registry;

use crate::catalogue::CatalogueHandle;
use crate::{brokering, catalogue, clock, echo, exec, forward, http};

/// All types in alphabetical order. Services of type `catalogue` use `catalogue`; without it they
/// cannot be built.
pub fn registry(catalogue: Option<Arc<CatalogueHandle>>) -> Registry {
    Registry::new(Vec::from([
        brokering::capability::service_type(),
        catalogue::service_type(catalogue),
        clock::service_type(),
        #[cfg(feature = "desktop")]
        crate::desktop::display::service_type(),
        echo::service_type(),
        exec::exec_type(),
        forward::service_type(),
        http::service_type(),
        #[cfg(feature = "desktop")]
        crate::desktop::input::service::service_type(),
        brokering::invoke::service_type(),
        exec::shell_type(),
    ]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use levada_core::{Framing, Identity};
    use levada_service::{Context, Definition, DefinitionError, Description, Service};

    const FORWARD: &str = "name = 'run'\ntype = 'forward'\nallow = ['127.0.0.1:80']\n";
    const EXEC: &str = "name = 'run'\ntype = 'exec'\n[[command]]\nprogram = 'cat'\n";
    const HTTP: &str = "name = 'run'\ntype = 'http'\norigin = '127.0.0.1:80'\n";
    const INVOKE: &str = "name = 'run'\ntype = 'invoke'\nstart = ['*/*']\n";

    fn build(definition: &Definition) -> Result<Arc<dyn Service>, DefinitionError> {
        registry(None).build(definition, &Context::without_client(Identity::from_bytes([1; 32])))
    }

    fn read(text: &str) -> Result<Definition, DefinitionError> {
        registry(None).parse(text)
    }

    #[test]
    fn each_type_can_be_built_and_described() {
        for kind in registry(None).names() {
            let definition = match kind {
                "exec" => read(EXEC).unwrap(),
                "invoke" => read(INVOKE).unwrap(),
                "forward" => read(FORWARD).unwrap(),
                "http" => read(HTTP).unwrap(),
                // They need a screen: the tests of the module `screens` of levada-cli build them.
                "display" | "input" => continue,
                // It needs a store.
                "catalogue" => continue,
                kind => Definition::plain("run", kind),
            };
            let service = build(&definition).unwrap();
            let description = Description::new(&definition, service.as_ref());
            assert_eq!((description.name.as_str(), description.kind.as_str()), ("run", kind));
            assert_eq!(description.framings, [Framing::Auto]);
            assert_eq!(description.category, service.category());
        }
    }

    #[test]
    fn each_type_is_in_the_pages() {
        let services = include_str!("../../../docs/services.md");
        let configuration = include_str!("../../../docs/configuration.md");
        for kind in registry(None).names() {
            let heading = format!("\n## {kind}\n");
            assert!(services.contains(&heading), "docs/services.md: no section `{kind}`");
            let value = format!("`\"{kind}\"`");
            assert!(configuration.contains(&value), "docs/configuration.md: no type {value}");
        }
    }

    #[test]
    fn a_definition_may_name_another_category() {
        let mut definition = Definition::plain("a", "echo");
        definition.category = Some("kitchen".into());
        let service = build(&definition).unwrap();
        assert_eq!(Description::new(&definition, service.as_ref()).category, "kitchen");
    }

    #[test]
    fn invalid_options_are_refused_with_their_key() {
        let wrong = |definition: &Definition| build(definition).err().unwrap().to_string();
        let mut definition = Definition::plain("a", "echo");
        definition.options.insert("speed".into(), 1.into());
        assert!(wrong(&definition).contains("`speed`"));
        let mut definition = read(EXEC).unwrap();
        definition.options.insert("pty".into(), 1.into());
        assert!(wrong(&definition).contains("`pty`"), "{}", wrong(&definition));
        assert!(wrong(&Definition::plain("a", "toaster")).contains("`toaster`"));
        assert!(wrong(&Definition::plain("a", "exec")).contains("`command`"));
        assert!(wrong(&Definition::plain("a", "invoke")).contains("`start`"));
        let mut definition = Definition::plain("a", "capability");
        definition.options.insert("entities".into(), 0.into());
        assert!(wrong(&definition).contains("at least 1"), "{}", wrong(&definition));
        assert!(wrong(&Definition::plain("a", "forward")).contains("`allow`"));
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = read(text);
            let _ = read(&format!("name = 'a'\ntype = 'exec'\n{text}"));
        });
    }

    #[test]
    fn a_definition_is_parsed() {
        let text =
            "name = 'echo'\ntype = 'echo'\nlocation = 'attic'\nframing = ['block:512', 'auto']";
        let definition = read(text).unwrap();
        assert_eq!(definition.framings, [Framing::Block(512), Framing::Auto]);
        assert_eq!(definition.location.as_deref(), Some("attic"));
        let one = read("name = 'a'\ntype = 'echo'\nframing = 'block:64'").unwrap();
        assert_eq!(one.framings, [Framing::Block(64)]);
        let plain = read("name = 'a'\ntype = 'echo'").unwrap();
        assert_eq!(plain, Definition::plain("a", "echo"));
    }

    #[test]
    fn errors_have_the_line_and_the_key() {
        assert!(refused("name = 'a'\ntype = 3").starts_with("line 2: `type`: "));
        assert!(refused("name = 'a b'\ntype = 'echo'").starts_with("line 1: `name`: "));
        assert!(
            refused("type = 'echo'\nname = 'a'\nframing = 'block:1'")
                .starts_with("line 3: `framing`: ")
        );
        assert!(refused("name = 'a'\ntype = 'echo'\nframing = []").contains("at least one"));
        assert!(refused("name = 'a'\ntype = 'echo'\nframing = ['auto', 'auto']").contains("twice"));
        assert!(
            refused("name = 'a'\ntype = 'echo'\n\nspeed = 1")
                .starts_with("line 4: `speed`: unknown field")
        );
        assert!(refused("name = 'a").starts_with("line 1"));
        assert!(refused("name = 'a'").contains("missing field `type`"));
        assert!(refused("name = 'a'\ntype = 'toaster'").contains("there is no type `toaster`"));
        let exec = "name = 'a'\ntype = 'exec'\n[[command]]\nprogram = 'cat'\nargz = 'x'";
        assert!(refused(exec).starts_with("line 5: `argz`: unknown field"));
        let pattern = "name = 'a'\ntype = 'exec'\n[[command]]\nprogram = 'cat'\nargs = '('";
        assert!(refused(pattern).starts_with("line 5: `args`: "));
    }

    #[test]
    fn errors_show_no_value() {
        let text = "name = 'a'\ntype = 'exec'\n[[command]]\nprogram = 'cat'\n[environment]\nTOKEN = ['hunter2']";
        let error = refused(text);
        assert!(error.starts_with("line 6: `TOKEN`: ") && !error.contains("hunter2"), "{error}");
    }
}
