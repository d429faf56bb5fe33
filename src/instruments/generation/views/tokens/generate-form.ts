import type { GenerateRequest, GenerationInfo } from '../../../../protocol/messages.generated';
import { ProtocolError } from '../../../../protocol/protocol-error';
import { isRangeText } from '../../../../protocol/ranges';
import type { IGenerationStart, IRunSource } from '../../../../store/source';
import { type Control, selectControl } from '../../../../views/shared/control';
import { type Translate, untranslated } from '../../../../views/shared/translate';
import { isUnderWay, type IGeneration } from '../../store/generations';
import { DEFAULTS } from '../effects/effects-subject';
import { PerturbDraft } from './perturb-draft';

type Sweep = NonNullable<GenerateRequest['sweep']>;
type Over = Sweep['over'];

/** What is written where something else is varied, and what is suggested. */
const FIRST: Readonly<Record<Over, string>> = { coefficient: '0.01, 0.1, 1', layers: '0 1', site: '' };
const MOST_VALUES = 200;

/** The settings of a sweep as they are being written. */
class SweepDraft {
  /** @param _changed - Shows the controls anew. */
  constructor(
    private readonly _changed: () => void,
    private readonly _t: Translate
  ) {}

  get value(): Sweep | null {
    return this._over === '' ? null : { over: this._over, values: this._values };
  }

  /** What is wrong with the settings as they are written. */
  get fault(): string | undefined {
    const { _over: over, _t: t, _values: values } = this;
    const wrong =
      over === 'coefficient'
        ? values.find(each => !Number.isFinite(each))
        : over === 'layers'
          ? values.find(each => !isRangeText(String(each)))
          : undefined;
    if (over === '') {
      return undefined;
    }
    if (values.length < 1 || values.length > MOST_VALUES) {
      return t('Must be 1 to %1 settings, got %2.', MOST_VALUES, values.length);
    }
    return wrong === undefined
      ? undefined
      : over === 'layers'
        ? t('Must be layers such as 0 1 2-3, got %1.', this._text)
        : t('Must be numbers such as 0.01, 0.1, 1, got %1.', this._text);
  }

  controls(fault: string | undefined, sites: readonly string[], t: Translate): Control[] {
    const words: Readonly<Record<Over | '', string>> = {
      '': t('nothing'),
      coefficient: t('coefficient'),
      layers: t('layers'),
      site: t('site')
    };
    return [
      selectControl('sweep.over', t('Sweep'), this._over, words, over => {
        this._over = over;
        this._text = over === 'site' ? sites.join(', ') : over === '' ? '' : FIRST[over];
        this._changed();
      }),
      ...(this._over === ''
        ? []
        : [
            {
              kind: 'text',
              id: 'sweep.values',
              label: t('Settings'),
              value: this._text,
              suggestions: [this._over === 'site' ? sites.join(', ') : FIRST[this._over]],
              spaced: true,
              title: t('Repeat the perturbation with other settings, and say of each what it changed'),
              fault,
              valid: () => true,
              change: text => {
                this._text = text;
                this._changed();
              }
            } satisfies Control
          ])
    ];
  }

  private get _values(): (number | string)[] {
    // A setting of layers may have commas of its own: `0-1,3`.
    const parts = this._text.split(this._over === 'layers' ? /[\s;]+/ : /[\s;,]+/).filter(Boolean);
    return this._over === 'coefficient' ? parts.map(Number) : parts;
  }

  private _over: Over | '' = '';
  private _text = '';
}

/** What became of the last request. */
export type Asked =
  | { readonly kind: 'idle' | 'sent' }
  | { readonly kind: 'started'; readonly start: IGenerationStart }
  | { readonly kind: 'refused'; readonly message: string; readonly field: string | null };

/** Numbers of a request, by their names in it. */
export type INumbers = Readonly<typeof DEFAULTS>;

/** What is asked for beside a perturbation, as it is written. */
interface IWrittenRequest {
  readonly prompts: readonly string[];
  readonly attention: boolean;
  readonly numbers: INumbers;
  readonly stop: string;
  /** Ids of tokens after which a sequence ends; empty is the tokenizer's end of text. */
  readonly stopTokens: string;
  /** Whether what is rarely asked for is shown too. */
  readonly isWhole: boolean;
}

const [MOST_STOP_TOKENS, LAST_TOKEN] = [64, 2 ** 31 - 1];
/** What a model takes that does not say it. */
const BOUNDS: GenerationInfo = { prompts: 128, tokens: 1048576 };

/** A request as a person writes it, and what became of it. It outlives what is shown. */
export class GenerateForm {
  constructor(
    private readonly _source: IRunSource,
    private readonly _started: (start: IGenerationStart) => void,
    private readonly _changed: () => void,
    private readonly _t: Translate = untranslated
  ) {
    this.sweep = new SweepDraft(() => this.set({}), _t);
    this.perturb = new PerturbDraft(
      () => (this.mayPerturb ? (_source.hello?.sites ?? []) : []),
      () => this.set({})
    );
  }

  readonly perturb: PerturbDraft;

  readonly sweep: SweepDraft;

  get written(): IWrittenRequest {
    return this._written;
  }

  get isOffered(): boolean {
    return this._source.generate !== undefined;
  }

  get asked(): Asked {
    return this._asked;
  }

  get bounds(): GenerationInfo {
    return this._source.hello?.generation ?? BOUNDS;
  }

  get mayPerturb(): boolean {
    return this._source.hello?.controls?.includes('perturb') ?? false;
  }

  /** The request, without what is as it is when absent. */
  get request(): GenerateRequest {
    const { bounds, perturb, sweep } = this;
    const { attention, numbers, prompts, stop, stopTokens } = this._written;
    const { candidates, lens, ...others } = numbers;
    const value = perturb.value;
    const tokens = idsOf(stopTokens);
    return {
      prompts: [...prompts],
      ...others,
      tokens: Math.min(numbers.tokens, bounds.tokens),
      ...(stop === '' ? {} : { stop: [stop.replace(/\\n/g, '\n').replace(/\\t/g, '\t')] }),
      ...(tokens.length > 0 ? { stop_tokens: tokens } : {}),
      ...(candidates === DEFAULTS.candidates ? {} : { candidates }),
      ...(attention && bounds.no_attention === undefined ? { attention } : {}),
      ...(lens > 0 && bounds.no_lens === undefined ? { lens } : {}),
      ...(value ? { perturb: value } : {}),
      ...(value && sweep.value ? { sweep: sweep.value } : {})
    };
  }

  /**
   * How many tokens the longest prompt may have, where that and what is to be written may be more than the
   * model reads; null where it surely is not, as a letter is a token at most for each of its bytes.
   */
  get mayBeTooLong(): number | null {
    const { numbers, prompts } = this._written;
    const bytes = Math.max(...prompts.map(each => new TextEncoder().encode(each).length));
    return bytes + numbers.tokens > (this.bounds.context ?? Infinity) ? bytes : null;
  }

  /** Change a prompt: nothing is drawn anew while it is typed, unless it becomes too long or short enough. */
  write(at: number, prompt: string): void {
    const before = this.mayBeTooLong;
    const prompts = this._written.prompts.map((each, index) => (index === at ? prompt : each));
    this._written = { ...this._written, prompts };
    this._settle();
    if (before !== this.mayBeTooLong) {
      this._changed();
    }
  }

  add(): void {
    this.set({ prompts: [...this._written.prompts, ''] });
  }

  remove(at: number): void {
    this.set({ prompts: this._written.prompts.filter((_, index) => index !== at) });
  }

  /** Change what is written, and show it. */
  set(change: Partial<IWrittenRequest>): void {
    this._written = { ...this._written, ...change };
    this._settle();
    this._changed();
  }

  /** What was said against a field of the request, by its dotted path or one within it. */
  faultAt(path: string): string | undefined {
    const { _asked: asked } = this;
    const field = asked.kind === 'refused' ? asked.field?.replace(/^request\./, '') : undefined;
    return asked.kind === 'refused' && (field === path || field?.startsWith(`${path}.`))
      ? asked.message
      : this._wrong.get(path);
  }

  /** What cannot be asked as it is written, by path of the request. */
  private get _wrong(): ReadonlyMap<string, string> {
    const { stopTokens } = this._written;
    const ids = idsOf(stopTokens);
    const isList = ids.every(id => Number.isInteger(id) && id >= 0 && id <= LAST_TOKEN);
    const stop = !isList
      ? this._t('Must be whole numbers from 0, such as 2, 50256, got %1.', stopTokens)
      : ids.length > MOST_STOP_TOKENS
        ? this._t('Must be at most %1 token ids, got %2.', MOST_STOP_TOKENS, ids.length)
        : undefined;
    const sweep = this.perturb.value ? this.sweep.fault : undefined;
    return new Map([
      ...(stop === undefined ? [] : [['stop_tokens', stop] as const]),
      ...(sweep === undefined ? [] : [['sweep', sweep] as const])
    ]);
  }

  /** Ask. Never rejects: what came of it is in `asked`. */
  async submit(): Promise<void> {
    const { _source: source } = this;
    const empty = this._written.prompts.findIndex(each => each === '');
    if (source.generate === undefined || this._asked.kind === 'sent') {
      return;
    }
    if (empty >= 0) {
      this._tell({
        kind: 'refused',
        message: this._t('Write a prompt, or take this one away.'),
        field: `prompts.${empty}`
      });
      return;
    }
    const [wrong] = this._wrong;
    if (wrong) {
      const [field, message] = wrong;
      this._written = { ...this._written, isWhole: this._written.isWhole || field === 'stop_tokens' };
      this._tell({ kind: 'refused', message, field });
      return;
    }
    this._tell({ kind: 'sent' });
    try {
      const start = await source.generate(this.request);
      this._tell({ kind: 'started', start });
      this._started(start);
    } catch (error) {
      this._tell(refusal(error));
    }
  }

  /** End a generation and, where it waits or is written too, the clean one beside it. Never rejects. */
  async end(generations: readonly IGeneration[], number: number): Promise<void> {
    const shown = generations.find(({ generation }) => generation === number);
    const companion = generations.find(each => each.generation === shown?.control && isUnderWay(each));
    try {
      for (const each of [number, ...(companion ? [companion.generation] : [])]) {
        await this._source.cancelGeneration?.(each);
      }
    } catch (error) {
      this._tell(refusal(error));
    }
  }

  /** The generation that waits or is written: the one that was asked for here, else the newest. */
  underWay(generations: readonly IGeneration[]): IGeneration | null {
    const running = generations.filter(isUnderWay);
    const own = this._asked.kind === 'started' ? this._asked.start.generation : null;
    return running.find(({ generation }) => generation === own) ?? running.at(-1) ?? null;
  }

  private _settle(): void {
    if (this._asked.kind === 'refused') {
      this._asked = { kind: 'idle' };
    }
  }

  private _tell(asked: Asked): void {
    this._asked = asked;
    this._changed();
  }

  private _asked: Asked = { kind: 'idle' };
  private _written: IWrittenRequest = {
    prompts: [''],
    attention: false,
    numbers: DEFAULTS,
    stop: '',
    stopTokens: '',
    isWhole: false
  };
}

const idsOf = (text: string): number[] =>
  text
    .split(/[\s,;]+/)
    .filter(Boolean)
    .map(Number);

function refusal(error: unknown): Asked {
  const message = error instanceof Error ? error.message : String(error);
  return { kind: 'refused', message, field: error instanceof ProtocolError ? (error.field ?? null) : null };
}
