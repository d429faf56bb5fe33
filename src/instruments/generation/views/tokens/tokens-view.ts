import { formatInteger } from '../../../../charts';
import type { TokensOptions, ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { type Control, selectControl } from '../../../../views/shared/control';
import type {
  IComposition,
  ICompositionEnvironment,
  IViewPart,
  IViewDefinition
} from '../../../../views/shared/definition';
import type { Translate } from '../../../../views/shared/translate';
import type { IGeneration } from '../../store/generations';
import { requestCode } from '../effects/effects-subject';
import { CandidatesPane } from './candidates-pane';
import { GenerateForm, type INumbers } from './generate-form';
import { TextReader, stateWords } from './text-facts';
import { TextPane, type Which } from './text-pane';

/** The form: prompts, numbers, what is kept, a perturbation, and what became of the request. */
function generateControls(
  form: GenerateForm,
  generations: readonly IGeneration[],
  copy: (text: string) => void,
  t: Translate
): Control[] {
  const { asked } = form;
  const underWay = form.underWay(generations);
  const fields = [
    ...promptControls(form, t),
    ...numberControls(form, t),
    ...keptControls(form, t),
    ...form.perturb.controls(path => form.faultAt(`${form.perturb.path}.${path}`), t),
    ...(form.perturb.value ? form.sweep.controls(form.faultAt('sweep'), form.perturb.sites, t) : []),
    ...rareControls(form, t)
  ];
  const isBlamed = fields.some(each => faultOf(each) !== undefined);
  return [
    ...fields.flatMap(withFault),
    {
      kind: 'button',
      id: 'generate.go',
      text: t('Generate'),
      title: t('Have the model go on from the prompts (Ctrl and Enter in a prompt)'),
      isDisabled: asked.kind === 'sent',
      press: () => void form.submit()
    },
    {
      kind: 'button',
      id: 'generate.cancel',
      text: t('Cancel'),
      title: t('End what waits or is being written'),
      isDisabled: underWay === null,
      press: () => underWay && void form.end(generations, underWay.generation)
    },
    {
      kind: 'button',
      id: 'generate.copy',
      text: t('Copy as code'),
      title: t('Copy the line that asks for the same'),
      isDisabled: isBlamed,
      press: () => copy(requestCode(form.request))
    },
    {
      kind: 'status',
      id: 'generate.status',
      text: statusWords(form, generations, underWay, isBlamed, t),
      isFault: asked.kind === 'refused' && !isBlamed
    }
  ];
}

const faultOf = (control: Control): string | undefined => ('fault' in control ? control.fault : undefined);

/** A field, and behind it what was said against it. */
function withFault(control: Control): Control[] {
  const text = faultOf(control);
  return text === undefined
    ? [control]
    : [control, { kind: 'status', id: `${control.id}.fault`, text, isFault: true }];
}

function promptControls(form: GenerateForm, t: Translate): Control[] {
  const { bounds } = form;
  const { prompts } = form.written;
  return [
    ...prompts.flatMap((value, at): Control[] => [
      {
        kind: 'area',
        id: `generate.prompt.${at}`,
        label: t('Prompt %1', formatInteger(at + 1)),
        value,
        fault: form.faultAt(`prompts.${at}`),
        change: text => form.write(at, text),
        enter: () => void form.submit()
      },
      ...(prompts.length > 1
        ? [
            {
              kind: 'button',
              id: `generate.remove.${at}`,
              text: t('Remove'),
              title: t('Take prompt %1 away', formatInteger(at + 1)),
              press: () => form.remove(at)
            } satisfies Control
          ]
        : [])
    ]),
    {
      kind: 'button',
      id: 'generate.add',
      text: t('Add a prompt'),
      title: t('The model takes %1 texts at once: prompts times samples', formatInteger(bounds.prompts)),
      isDisabled: prompts.length >= bounds.prompts,
      press: () => form.add()
    }
  ];
}

function numberControls(form: GenerateForm, t: Translate): Control[] {
  const { bounds } = form;
  const { numbers } = form.written;
  const number = (
    name: keyof INumbers,
    label: string,
    [least, most]: readonly [number, number],
    title: string,
    isFraction = false
  ): Control => ({
    kind: 'number',
    id: `generate.${name}`,
    label,
    title,
    fault: form.faultAt(name),
    least,
    most,
    isFraction,
    value: Math.min(most, numbers[name]),
    change: value => form.set({ numbers: { ...numbers, [name]: value } })
  });
  const [whole, share] = [Number.MAX_SAFE_INTEGER, 1e-6];
  return [
    number(
      'tokens',
      t('Tokens'),
      [0, Math.min(bounds.tokens, bounds.context ?? Infinity)],
      t('Tokens to write, at most')
    ),
    number('temperature', t('Temperature'), [0, 100], t('0 always takes the most probable token'), true),
    number('top_k', t('Top-k'), [0, 1e6], t('Draw from the k most probable tokens; 0 is all')),
    number(
      'top_p',
      t('Top-p'),
      [share, 1],
      t('Draw from the fewest tokens that reach p together; 1 is all'),
      true
    ),
    number('seed', t('Seed'), [0, whole], t('The same seed draws the same tokens')),
    number('samples', t('Samples'), [1, bounds.prompts], t('Texts for each prompt')),
    ...(bounds.no_lens === undefined
      ? [number('lens', t('Logit lens'), [0, 20], t('Candidates to read from each layer; 0 is none'))]
      : [])
  ];
}

function keptControls(form: GenerateForm, t: Translate): Control[] {
  return [
    {
      kind: 'text',
      id: 'generate.stop',
      label: t('Stop at'),
      value: form.written.stop,
      suggestions: ['\\n'],
      spaced: true,
      fault: form.faultAt('stop'),
      valid: text => text.length <= 200,
      change: stop => form.set({ stop })
    },
    ...(form.bounds.no_attention === undefined
      ? [
          selectControl(
            'generate.attention',
            t('Attention'),
            form.written.attention ? 'on' : 'off',
            { off: t('not traced'), on: t('traced') },
            value => form.set({ attention: value === 'on' })
          )
        ]
      : [])
  ];
}

/** What is rarely asked for, folded away until somebody wants it. */
function rareControls(form: GenerateForm, t: Translate): Control[] {
  const { isWhole, numbers, stopTokens } = form.written;
  return [
    {
      kind: 'toggle',
      id: 'generate.more',
      text: t('More'),
      title: t('Candidates and stop tokens'),
      pressed: isWhole,
      change: value => form.set({ isWhole: value })
    },
    ...(isWhole
      ? ([
          {
            kind: 'number',
            id: 'generate.candidates',
            label: t('Candidates'),
            title: t('Candidates to keep of each position'),
            fault: form.faultAt('candidates'),
            least: 0,
            most: 100,
            value: numbers.candidates,
            change: candidates => form.set({ numbers: { ...numbers, candidates } })
          },
          {
            kind: 'text',
            id: 'generate.stop_tokens',
            label: t('Stop tokens'),
            title: t("A sequence ends after one of these; the tokenizer's end of text when absent"),
            value: stopTokens,
            suggestions: [],
            spaced: true,
            fault: form.faultAt('stop_tokens'),
            valid: () => true,
            change: text => form.set({ stopTokens: text })
          }
        ] satisfies Control[])
      : [])
  ];
}

/** What became of the request: its place in the queue, how far it is, or why it was refused. */
function statusWords(
  form: GenerateForm,
  generations: readonly IGeneration[],
  underWay: IGeneration | null,
  isBlamed: boolean,
  t: Translate
): string {
  const { asked } = form;
  if (asked.kind === 'sent') {
    return t('Asking the model…');
  }
  if (asked.kind === 'refused') {
    return isBlamed ? t('Nothing was asked: see the field at fault.') : asked.message;
  }
  const number = asked.kind === 'started' ? asked.start.generation : null;
  const shown = underWay ?? generations.find(({ generation }) => generation === number);
  if (form.mayBeTooLong !== null && underWay === null) {
    return t(
      'The model reads %1 tokens at once: a prompt of up to %2 and %3 to write may be too many.',
      formatInteger(form.bounds.context ?? 0),
      formatInteger(form.mayBeTooLong),
      formatInteger(form.written.numbers.tokens)
    );
  }
  return shown ? t('Generation %1: %2', formatInteger(shown.generation), stateWords(shown, t)) : '';
}

/**
 * What a model writes: a form that asks it to, the text token by token, what the token that is looked at
 * could have been, and perhaps another text beside it.
 */
class TokensView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<TokensOptions>
  ) {
    this._reader = new TextReader(_source, _env.runs, () => _env.refresh());
    this._form = new GenerateForm(
      _source,
      () => this._showNewest(),
      () => _env.rearrange(),
      _env.t
    );
  }

  readonly className = 'jp-MegalensMoments jp-MegalensTokens';
  readonly zoomed = null;
  readonly unpictured = '';

  async prepare(): Promise<void> {
    // What cannot be read is said by the parts.
    const facts = await this._reader.facts(this._env.options).catch(() => null);
    this._hasOther = (facts?.other ?? null) !== null;
  }

  layout(): readonly IViewPart[] {
    const half = this._hasOther ? ' jp-mod-half' : '';
    const className = `jp-MegalensMoments-pane${half}`;
    const options = this._env.options as Required<ViewOptions>;
    const text = (which: Which): IViewPart => ({
      key: `${which}${half}`,
      className,
      options,
      create: (source, env) => {
        this._copy = sentence => void env.actions.copy(sentence);
        return new TextPane(source, env, this._reader, which, this._end);
      }
    });
    const candidates = (which: Which): IViewPart => ({
      key: `${which} candidates${half}`,
      className: `${className} jp-MegalensTokens-candidates`,
      options,
      create: (source, env) => new CandidatesPane(source, env, this._reader, which)
    });
    return this._hasOther
      ? [text('text'), text('other'), candidates('text'), candidates('other')]
      : [text('text'), candidates('text')];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key.startsWith('text') && !key.includes('candidates') ? true : isDrawn(key);
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<TokensOptions> {
    return options as Partial<TokensOptions>;
  }

  drawn(key: string, isDrawn: boolean): void {
    const half = this._hasOther ? ' jp-mod-half' : '';
    this._drawn.set(key, isDrawn);
    // What is hidden is not drawn by itself, and candidates come after the pane for them.
    const isLate =
      this._drawn.get(`text${half}`) === true && this._drawn.get(`text candidates${half}`) === false;
    if (isLate && !this._isLate) {
      this._env.refresh(true);
    }
    this._isLate = isLate;
    if (this._hasOther !== ((this._reader.last?.other ?? null) !== null)) {
      this._env.relayout();
    }
  }

  controls(of: (key: string) => readonly Control[]): {
    main: readonly Control[];
    folded?: { label: string; controls: readonly Control[] | null };
  } {
    const { t } = this._env;
    const [name, ...rest] = of(this._hasOther ? 'text jp-mod-half' : 'text');
    const isOffered = this._form.isOffered;
    const generations = this._reader.last?.generations ?? [];
    const toggle: Control = {
      kind: 'toggle',
      id: 'generate',
      text: t('Prompts'),
      title: t('Ask the model to write'),
      pressed: this._isOpen,
      change: isOpen => {
        this._isOpen = isOpen;
        this._env.rearrange();
      }
    };
    return {
      main: [...(name ? [name] : []), ...(isOffered ? [toggle] : []), ...rest],
      folded: {
        label: t('Generate'),
        controls: isOffered && this._isOpen ? generateControls(this._form, generations, this._copy, t) : null
      }
    };
  }

  dispose(): void {
    this._reader.dispose();
  }

  /** By key, whether a part had something to show when it was drawn last. */
  private readonly _drawn = new Map<string, boolean>();
  private _isLate = false;
  /** Parts are given what copies a text. */
  private _copy: (text: string) => void = () => undefined;

  private readonly _end = (generation: number): void =>
    void this._form.end(this._reader.last?.generations ?? [], generation);

  private _showNewest(): void {
    this._source.link?.pinPosition(null);
    this._env.choose({ generation: null, sequence: 0, position: null });
  }

  private readonly _reader: TextReader;
  private readonly _form: GenerateForm;
  private _hasOther = false;
  private _isOpen = true;
}

export const view: IViewDefinition<TokensOptions> = {
  compose: (source, env) => new TokensView(source, env)
};
