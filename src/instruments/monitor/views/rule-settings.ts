import { type IQuestion, asObject } from '../../../client/rest';
import type { Hello } from '../../../protocol/messages.generated';
import { own } from '../../../protocol/records';
import { boundedText } from '../../../protocol/texts';
import { type IRunSource, takesChanges } from '../../../store/source';
import { monitorSettings, mutesOf, type IMuted } from '../store/alarms';

/** A number of a rule that people can change. */
interface IRuleParameter {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly isWhole: boolean;
  readonly least?: number;
  readonly most?: number;
}

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
function rulesOf(hello: Hello | null): IRuleInfo[] {
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

function ruleInForce(hello: Hello | null, rule: string): Json {
  const settings = own(hello?.config.instruments ?? {}, 'monitor');
  return member(member(settings, 'rules'), rule);
}

/** Alarms of severity critical and warning that settings of the rules give in what is recorded of a run. */
interface IAlarmCounts {
  readonly steps: number;
  /** By rule; one that is not here gave none. */
  readonly rules: Readonly<Record<string, number>>;
  /** Whether all recorded steps were judged. */
  readonly whole: boolean;
}

/** How many alarms settings of the rules would have given in the recording. */
export const ALARM_COUNTS: IQuestion<{ readonly settings: object }, IAlarmCounts> = {
  name: 'alarms/count',
  inEngine: false,
  read: answer => {
    const { steps, rules, whole } = asObject(answer);
    const counts = Object.entries(asObject(rules)).map(
      ([rule, count]) => [rule, Number(count) || 0] as const
    );
    return { steps: Number(steps) || 0, rules: Object.fromEntries(counts), whole: whole !== false };
  }
};

type Value = number | boolean;
type Part = 'muted' | 'rules';

export type Change =
  | { readonly kind: 'none' | 'sent' }
  | { readonly kind: 'accepted' | 'applied'; readonly step: number }
  | { readonly kind: 'refused'; readonly message: string };

/** Numbers of alarms of the edited rules, as they are edited and as they are in force. */
type Counts =
  | { readonly kind: 'none' | 'counting' | 'unrecorded' }
  | { readonly kind: 'counted'; readonly edited: IAlarmCounts; readonly inForce: IAlarmCounts }
  | { readonly kind: 'failed'; readonly message: string };

/** The rules of a run as a person edits them, and what is muted: shared by all parts of a view. */
export class RuleSettings {
  constructor(
    private readonly source: IRunSource,
    private readonly refresh: () => void
  ) {}

  get rules(): readonly IRuleInfo[] {
    return rulesOf(this.source.hello);
  }

  get muted(): readonly IMuted[] {
    return mutesOf(monitorSettings(this.source));
  }

  /** Whether numbers can be tried: otherwise they are only told. */
  get canEdit(): boolean {
    return this.canApply || this.source.asker?.(ALARM_COUNTS) !== undefined;
  }

  get canApply(): boolean {
    return takesChanges(this.source);
  }

  changeOf(what: Part): Change {
    return this._changes[what];
  }

  get counts(): Counts {
    return this._counts;
  }

  /** Rules that are not as they are in force. */
  get edited(): readonly string[] {
    return [...this._edits.keys()];
  }

  valueOf(rule: string, parameter: string): unknown {
    return this._edits.get(rule)?.get(parameter) ?? this._inForce(rule, parameter);
  }

  isEdited(rule: string, parameter: string): boolean {
    return this._edits.get(rule)?.has(parameter) ?? false;
  }

  edit(rule: string, parameter: string, value: Value): void {
    const edits = new Map(this._edits.get(rule));
    edits.set(parameter, value);
    if (value === this._inForce(rule, parameter)) {
      edits.delete(parameter);
    }
    this._edits.set(rule, edits);
    if (edits.size === 0) {
      this._edits.delete(rule);
    }
    this._changes.rules = { kind: 'none' };
    void this._count();
    this.refresh();
  }

  revert(): void {
    this._edits.clear();
    this._changes.rules = { kind: 'none' };
    void this._count();
    this.refresh();
  }

  /** Put what is edited in force. */
  async apply(): Promise<void> {
    const rules = this._rules();
    if (await this._configure({ rules })) {
      this._edits.clear();
      void this._count();
      this.refresh();
    }
  }

  /** Raise alarms of these no more. */
  async mute(...more: readonly IMuted[]): Promise<void> {
    await this._configure({ muted: [...this.muted, ...more] });
  }

  async unmute(index: number): Promise<void> {
    await this._configure({ muted: this.muted.filter((_, at) => at !== index) });
  }

  dispose(): void {
    this._counting?.abort();
  }

  private async _configure(monitor: Record<string, unknown>): Promise<boolean> {
    const what = 'rules' in monitor ? 'rules' : 'muted';
    const tell = (change: Change): void => {
      this._changes[what] = change;
      this.refresh();
    };
    tell({ kind: 'sent' });
    try {
      const { step } = await this.source.configure(
        { flags: {}, instruments: { monitor } },
        message => void tell({ kind: 'accepted', step: message.step })
      );
      tell({ kind: 'applied', step });
      return true;
    } catch (error) {
      tell({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
      return false;
    }
  }

  private async _count(): Promise<void> {
    this._counting?.abort();
    const counting = (this._counting = new AbortController());
    const ask = this.source.asker?.(ALARM_COUNTS);
    const judged = this.edited;
    if (judged.length === 0 || !ask) {
      this._counts = { kind: judged.length === 0 ? 'none' : 'unrecorded' };
      return;
    }
    this._counts = { kind: 'counting' };
    const { signal } = counting;
    // Rules that nobody edited give what they gave.
    const others = Object.fromEntries(this.rules.map(({ name }) => [name, { on: false }]));
    const inForce = Object.fromEntries(judged.map(name => [name, ruleInForce(this.source.hello, name)]));
    const edited = Object.fromEntries(
      Object.entries(this._rules()).map(([name, edits]) => [
        name,
        { ...ruleInForce(this.source.hello, name), ...edits }
      ])
    );
    const { muted } = this;
    let counts: Counts;
    try {
      const before = await ask({ settings: { rules: { ...others, ...inForce }, muted } }, signal);
      const after = await ask({ settings: { rules: { ...others, ...edited }, muted } }, signal);
      counts = before && after ? { kind: 'counted', edited: after, inForce: before } : { kind: 'unrecorded' };
    } catch (error) {
      counts = { kind: 'failed', message: error instanceof Error ? error.message : String(error) };
    }
    if (!signal.aborted) {
      this._counts = counts;
      this.refresh();
    }
  }

  private _rules(): Record<string, Record<string, Value>> {
    return Object.fromEntries([...this._edits].map(([rule, edits]) => [rule, Object.fromEntries(edits)]));
  }

  private _inForce(rule: string, parameter: string): unknown {
    const { [parameter]: value } = ruleInForce(this.source.hello, rule);
    return value;
  }

  private readonly _edits = new Map<string, ReadonlyMap<string, Value>>();
  private readonly _changes: Record<Part, Change> = { rules: { kind: 'none' }, muted: { kind: 'none' } };
  private _counts: Counts = { kind: 'none' };
  private _counting: AbortController | null = null;
}

/** What mutes a rule in one module, whatever is measured of it. */
export function mutesIn(rule: string, module: string, name: string): IMuted[] {
  // In a pattern these stand for more than themselves.
  const plain = (text: string): string => text.replace(/[[\]*?]/g, '?');
  return module === name
    ? [{ rule, name: plain(name) }]
    : ['.', '/'].map(separator => ({ rule, name: `${plain(module)}${separator}*` }));
}
