import { own } from './records';
import { ProtocolError } from './protocol-error';

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

/** The members of an object that a JSON Schema gives a default, with it. */
export function schemaDefaults(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { properties = {} } = schema as { properties?: Record<string, { default?: unknown }> };
  return Object.fromEntries(
    Object.entries(properties).flatMap(([name, spec]) =>
      spec.default === undefined ? [] : [[name, spec.default]]
    )
  );
}

/** Where a value does not fit its schema, and why. */
export interface IMisfit {
  /** Names and indices from the value's root on. */
  readonly path: readonly string[];
  /** What was expected, after "it": `must be one of train, eval`. */
  readonly words: string;
}

/** Says where a value does not fit; null where it fits. */
export type SchemaCheck = (value: unknown) => IMisfit | null;

/** Words of a schema that say nothing of which values fit; so do ours, which begin with `x-`. */
const REMARKS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'default',
  'examples',
  '$schema',
  '$id',
  '$comment',
  'format'
]);

const WORDS: ReadonlySet<string> = new Set(
  (
    '$ref $defs type enum const anyOf oneOf allOf properties required additionalProperties propertyNames ' +
    'minProperties maxProperties items minItems maxItems uniqueItems minLength maxLength pattern minimum maximum ' +
    'exclusiveMinimum exclusiveMaximum multipleOf'
  ).split(' ')
);

/**
 * Compile a JSON Schema to a check. Python's twin is `megalens/protocol/contract.py`.
 *
 * Time and memory are linear in the value, and the first misfit ends it: a message of millions of values
 * costs no more than reading it. Whole numbers are those that can be counted with, so none is larger than
 * 2^53 - 1, whatever else the schema says.
 *
 * @param definitions - What `#/$defs/…` refers to; the schema's own where left out.
 * @throws {ProtocolError} `bad-parameter` when the schema has a word that is not understood.
 */
export function schemaCheck(schema: ISchema, definitions: Definitions = schema.$defs ?? {}): SchemaCheck {
  return new Compiler(definitions).compile(schema);
}

export interface IKind {
  readonly check: SchemaCheck;
  readonly definition: ISchema;
}

/** What a schema's `oneOf` chooses among, by the constant that each kind has as `member`. */
export function kindsBy(member: string, { oneOf = [], $defs = {} }: ISchema): ReadonlyMap<string, IKind> {
  const kinds = oneOf.flatMap(each => {
    const definition = own($defs, String(each.$ref).slice('#/$defs/'.length));
    const tag = typeof definition === 'object' ? own(definition.properties ?? {}, member) : undefined;
    return typeof definition === 'object' && typeof tag === 'object'
      ? [[String(tag.const), { check: schemaCheck(each, $defs), definition }] as const]
      : [];
  });
  return new Map(kinds);
}

class Compiler {
  constructor(private readonly definitions: Definitions) {}

  compile(schema: Subschema | undefined): SchemaCheck {
    if (schema === undefined || schema === true) {
      return () => null;
    }
    if (schema === false) {
      return () => misfit('is not known here');
    }
    const strange = Object.keys(schema).find(
      word => !WORDS.has(word) && !REMARKS.has(word) && !word.startsWith('x-')
    );
    if (strange !== undefined) {
      throw new ProtocolError(
        'bad-parameter',
        `A schema must use only the words ${[...WORDS].join(', ')}, got ${shown(strange)}.`
      );
    }
    const checks = [
      ...(schema.$ref === undefined ? [] : [this.reference(schema.$ref)]),
      ...ofType(schema),
      ...ofWords(schema),
      ...ofTexts(schema),
      ...ofNumbers(schema),
      ...this.ofLists(schema),
      ...this.ofObjects(schema),
      ...(schema.allOf ?? []).map(each => this.compile(each)),
      ...(schema.anyOf === undefined ? [] : [this.anyOf(schema.anyOf)]),
      ...(schema.oneOf === undefined ? [] : [this.oneOf(schema.oneOf)])
    ];
    const [only] = checks;
    return only !== undefined && checks.length === 1 ? only : value => first(checks, value);
  }

  private reference(reference: string): SchemaCheck {
    const name = reference.slice('#/$defs/'.length);
    const known = this.named.get(name);
    if (known !== undefined) {
      return known;
    }
    // Entered before it is compiled: a definition may refer to itself.
    let check: SchemaCheck = () => null;
    this.named.set(name, value => check(value));
    check = this.compile(own(this.definitions, name) ?? false);
    return check;
  }

  private anyOf(branches: readonly Subschema[]): SchemaCheck {
    const checks = branches.map(branch => this.compile(branch));
    return value => {
      let deepest: IMisfit | null = null;
      for (const check of checks) {
        const found = check(value);
        if (found === null) {
          return null;
        }
        // The branch that got furthest into the value says most.
        deepest = deepest === null || found.path.length > deepest.path.length ? found : deepest;
      }
      return deepest;
    };
  }

  private oneOf(branches: readonly Subschema[]): SchemaCheck {
    const checks = branches.map(branch => this.compile(branch));
    const some = this.anyOf(branches);
    return value =>
      some(value) ??
      (checks.filter(check => check(value) === null).length > 1
        ? misfit('must fit one schema, fits several')
        : null);
  }

  private ofLists({ items, minItems = 0, maxItems = Infinity, uniqueItems }: ISchema): SchemaCheck[] {
    if (items === undefined && minItems === 0 && maxItems === Infinity && uniqueItems !== true) {
      return [];
    }
    const check = this.compile(items);
    return [
      value => {
        if (!Array.isArray(value)) {
          return null;
        }
        if (value.length < minItems || value.length > maxItems) {
          return misfit(`must have ${range(minItems, maxItems)} entries, got ${value.length}`);
        }
        for (let at = 0; at < value.length; at += 1) {
          const found = check(value[at]);
          if (found !== null) {
            return within(String(at), found);
          }
        }
        return uniqueItems === true && new Set(value.map(each => JSON.stringify(each))).size < value.length
          ? misfit('must not have an entry twice')
          : null;
      }
    ];
  }

  private ofObjects(schema: ISchema): SchemaCheck[] {
    const { properties, required = [], additionalProperties, propertyNames } = schema;
    const { minProperties = 0, maxProperties = Infinity } = schema;
    const known = new Map(Object.entries(properties ?? {}).map(([name, each]) => [name, this.compile(each)]));
    const other = this.compile(additionalProperties);
    const called = this.compile(propertyNames);
    return [
      value => {
        if (typeof value !== 'object' || value === null || Array.isArray(value)) {
          return null;
        }
        const members: [string, unknown][] = Object.entries(value);
        if (members.length < minProperties || members.length > maxProperties) {
          return misfit(`must have ${range(minProperties, maxProperties)} members, got ${members.length}`);
        }
        const lacking = required.find(name => !Object.hasOwn(value, name));
        if (lacking !== undefined) {
          return misfit(`lacks the member ${lacking}`);
        }
        for (const [name, each] of members) {
          const found = called(name) ?? (known.get(name) ?? other)(each);
          if (found !== null) {
            return within(name, found);
          }
        }
        return null;
      }
    ];
  }

  private readonly named = new Map<string, SchemaCheck>();
}

const KINDS: ReadonlyMap<string, (value: unknown) => boolean> = new Map([
  ['object', value => typeof value === 'object' && value !== null && !Array.isArray(value)],
  ['array', Array.isArray],
  ['string', value => typeof value === 'string'],
  ['integer', Number.isSafeInteger],
  ['number', value => typeof value === 'number' && Number.isFinite(value)],
  ['boolean', value => typeof value === 'boolean'],
  ['null', value => value === null]
]);

function ofType({ type }: ISchema): SchemaCheck[] {
  if (type === undefined) {
    return [];
  }
  const names = typeof type === 'string' ? [type] : type;
  const kinds = names.map(name => KINDS.get(name) ?? (() => false));
  const words = names.map(name => (name === 'integer' ? 'whole number up to 2^53 - 1' : name)).join(' or ');
  return [
    value =>
      kinds.some(fits => fits(value)) ? null : misfit(`must be of type ${words}, got ${shown(value)}`)
  ];
}

function ofWords(schema: ISchema): SchemaCheck[] {
  const some = 'const' in schema ? [schema.const] : schema.enum;
  if (some === undefined) {
    return [];
  }
  const known = new Set(some.map(each => JSON.stringify(each)));
  const words = some.map(String).join(', ').slice(0, 300);
  return [
    value =>
      (typeof value !== 'object' || value === null) && known.has(JSON.stringify(value) ?? '')
        ? null
        : misfit(`must be one of ${words}, got ${shown(value)}`)
  ];
}

function ofTexts({ minLength = 0, maxLength = Infinity, pattern }: ISchema): SchemaCheck[] {
  if (minLength === 0 && maxLength === Infinity && pattern === undefined) {
    return [];
  }
  const matches = new RegExp(pattern ?? '', 'u');
  return [
    value => {
      if (typeof value !== 'string') {
        return null;
      }
      // A character is one or two units of a text.
      const count =
        value.length <= maxLength || value.length > 2 * maxLength ? value.length : [...value].length;
      if (count < minLength || count > maxLength) {
        return misfit(`must have ${range(minLength, maxLength)} characters, got ${count}`);
      }
      return matches.test(value) ? null : misfit(`must match ${pattern}, got ${shown(value)}`);
    }
  ];
}

function ofNumbers(schema: ISchema): SchemaCheck[] {
  const { minimum = -Infinity, maximum = Infinity, multipleOf } = schema;
  const { exclusiveMinimum: above = -Infinity, exclusiveMaximum: below = Infinity } = schema;
  const words = [
    ...(above === -Infinity ? [] : [`above ${above}`]),
    ...(below === Infinity ? [] : [`below ${below}`]),
    ...(minimum === -Infinity && maximum === Infinity ? [] : [range(minimum, maximum)]),
    ...(multipleOf === undefined ? [] : [`a multiple of ${multipleOf}`])
  ].join(', ');
  // A half of 0.3 / 0.1 must be no remainder.
  const fits = (value: number): boolean =>
    multipleOf === undefined || Math.abs(value / multipleOf - Math.round(value / multipleOf)) < 1e-9;
  return words === ''
    ? []
    : [
        value =>
          typeof value !== 'number' ||
          (value >= minimum && value <= maximum && value > above && value < below && fits(value))
            ? null
            : misfit(`must be ${words}, got ${value}`)
      ];
}

function first(checks: readonly SchemaCheck[], value: unknown): IMisfit | null {
  for (const check of checks) {
    const found = check(value);
    if (found !== null) {
      return found;
    }
  }
  return null;
}

function misfit(words: string): IMisfit {
  return { path: [], words };
}

function within(name: string, { path, words }: IMisfit): IMisfit {
  return { path: [name, ...path], words };
}

function range(least: number, most: number): string {
  return most === Infinity ? `at least ${least}` : least < 0 ? `at most ${most}` : `${least} to ${most}`;
}

function shown(value: unknown): string {
  return value === null
    ? 'null'
    : typeof value === 'object'
      ? 'an object or a list'
      : String(value).slice(0, 100);
}
