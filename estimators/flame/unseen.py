"""Layers of a model that were never profiled, foretold from profiled ones of their type."""

from estimators.errors import ProfileError
from estimators.flame.parser import CounterParser, Inputs
from estimators.profiles import LayerRecord, Profile, parse_layer_key


def complete_layers(
    profile: Profile, model: str, *, inputs: Inputs = "config"
) -> dict[str, LayerRecord]:
    """Collect the layers of a model, measured where possible and foretold where not.

    Args:
        profile: Measurements; other models' layers are what is learned from.
        model: A network of the profile.
        inputs: What the parser regresses times from.

    Raises:
        ProfileError: Too few layers of a needed type were profiled, or at different clocks.
    """
    parsers: dict[str, CounterParser] = {}
    found: dict[str, LayerRecord] = {}
    for key in dict.fromkeys(profile.network(model).layers):
        if key in profile.layers:
            found[key] = profile.layers[key]
            continue
        kind, config = parse_layer_key(key)
        if kind not in parsers:
            known = [record for record in profile.layers.values() if record.kind == kind]
            if not known:
                raise ProfileError(
                    f"no layer of type '{kind}' was ever profiled",
                    where=profile.source,
                    hint="merge a profile that has some",
                )
            parsers[kind] = CounterParser(inputs=inputs).fit(known)
        found[key] = parsers[kind].predict(config)
    return found
