/** The members of an object that a JSON Schema gives a default, with it. */
export function schemaDefaults(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { properties = {} } = schema as { properties?: Record<string, { default?: unknown }> };
  return Object.fromEntries(
    Object.entries(properties).flatMap(([name, spec]) =>
      spec.default === undefined ? [] : [[name, spec.default]]
    )
  );
}
