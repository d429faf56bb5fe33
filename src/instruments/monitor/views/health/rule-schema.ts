import type { Hello } from '../../../../protocol/messages.generated';
import { own } from '../../../../protocol/own';
import { boundedText } from '../../../../protocol/whole-text';

/** A number of a rule that people can change. */
export interface IRuleParameter {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly isWhole: boolean;
  readonly least?: number;
  readonly most?: number;
}

/** A rule as its run announces it. */
export interface IRuleInfo {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly parameters: readonly IRuleParameter[];
}

type Json = Readonly<Record<string, unknown>>;

const objectOf = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
const member = (value: unknown, name: string): Json => objectOf(own(objectOf(value), name));
const textOf = (value: unknown, otherwise: string): string =>
  typeof value === 'string' ? boundedText(value, 400) : otherwise;
const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** The rules that a run says can be set; none where it says none. */
export function rulesOf(hello: Hello | null): IRuleInfo[] {
  const schema = own(hello?.configurable ?? {}, 'monitor')?.schema;
  const rules = member(member(member(schema, 'properties'), 'rules'), 'properties');
  return Object.entries(rules).map(([name, rule]) => ({
    name,
    title: textOf(own(objectOf(rule), 'title'), name),
    description: textOf(own(objectOf(rule), 'description'), ''),
    parameters: Object.entries(member(rule, 'properties')).flatMap(([parameter, property]) => {
      const { type, title, description, minimum, maximum } = objectOf(property);
      return type === 'number' || type === 'integer'
        ? [
            {
              name: parameter,
              title: textOf(title, parameter),
              description: textOf(description, ''),
              isWhole: type === 'integer',
              least: numberOf(minimum),
              most: numberOf(maximum)
            }
          ]
        : [];
    })
  }));
}

/** What is in force of a rule. */
export function ruleInForce(hello: Hello | null, rule: string): Json {
  const settings = own(hello?.config.instruments ?? {}, 'monitor');
  return member(member(settings, 'rules'), rule);
}
