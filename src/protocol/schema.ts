/**
 * A JSON Schema (2020-12), of the words that `schemaCheck` understands; others may stand there and are
 * refused when it is compiled.
 */
export interface ISchema {
  readonly $ref?: string;
  readonly $defs?: Definitions;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Subschema[];
  readonly oneOf?: readonly ISchema[];
  readonly allOf?: readonly Subschema[];
  readonly properties?: Readonly<Record<string, Subschema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Subschema;
  readonly propertyNames?: Subschema;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly items?: Subschema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly multipleOf?: number;
  readonly default?: unknown;
  readonly [other: string]: unknown;
}

export type Definitions = Readonly<Record<string, ISchema>>;

/** A schema inside another one: `true` takes everything, `false` nothing. */
export type Subschema = ISchema | boolean;
