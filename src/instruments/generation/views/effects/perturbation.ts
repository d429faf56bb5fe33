import type {
  GenerateRequest,
  Perturb,
  PerturbSite,
  SiteInfo
} from '../../../../protocol/messages.generated';
import { own } from '../../../../protocol/records';
import { formatInteger, formatNumber } from '../../../../charts';
import { pythonCall } from '../../../../views/code';
import { perturbText } from '../../../../views/shared/perturb-text';
import type { Translate } from '../../../../views/shared/translate';

/** Say what was perturbed: `MLP output: Additive Gaussian noise, layers 2-3; seed 7`. Empty if unknown. */
export function perturbationWords(
  request: GenerateRequest | null,
  sites: readonly SiteInfo[],
  t: Translate
): string {
  const { perturb } = request ?? {};
  if (!perturb) {
    return '';
  }
  // It lasts as long as the generation, whatever phases it names.
  const always = Object.fromEntries(
    Object.entries(perturb.sites).map(([name, { phases: _, ...site }]) => [name, site])
  );
  const words = perturbText({ ...perturb, sites: always }, sites);
  return perturb.seed ? t('%1; seed %2', words, formatInteger(perturb.seed)) : words;
}

export type SweepOver = NonNullable<GenerateRequest['sweep']>['over'];

/** Name a setting of a sweep: `coefficient 0.1`, `layers 0-3`. */
export function settingWords(over: SweepOver | null, setting: string, value: number, t: Translate): string {
  const text = Number.isFinite(value) ? formatNumber(value) : setting;
  switch (over) {
    case 'coefficient':
      return t('coefficient %1', text);
    case 'layers':
      return t('layers %1', text);
    case 'site':
      return t('site %1', text);
    case null:
      return text;
  }
}

/** A request as the Python call that makes it. What is at its default is left out. */
export function requestCode(request: GenerateRequest): string {
  const { prompts, tokens, perturb, sweep, ...others } = request;
  const named = Object.entries(others).filter(([name, value]) => !isDefault(name, value));
  return pythonCall(
    'run.generate',
    [prompts.length === 1 ? prompts[0] : prompts],
    [
      ...(tokens === undefined || tokens === DEFAULTS['tokens'] ? [] : [['tokens', tokens] as const]),
      ...named,
      ...(perturb ? [['perturb', bySite(perturb)] as const] : []),
      ...(sweep ? [['sweep', { [sweep.over]: sweep.values }] as const] : [])
    ]
  );
}

/** The sites alone where nothing else is said, as a person writes it. */
const bySite = ({ sites, seed }: Perturb): unknown => (seed ? { sites, seed } : sites);

/** The request of one point of a sweep, with its perturbation as set there. Null if that is unknown. */
export function pointRequest(
  request: GenerateRequest | null,
  setting: string,
  value: number
): GenerateRequest | null {
  const { perturb, sweep, ...others } = request ?? { prompts: [] };
  const [entry] = Object.entries(perturb?.sites ?? {});
  if (!request || !perturb || !sweep || !entry) {
    return null;
  }
  const [name, site] = entry;
  const [next, changed]: [string, PerturbSite] =
    sweep.over === 'site'
      ? [setting, site]
      : sweep.over === 'layers'
        ? [name, { ...site, layers: setting }]
        : [name, { ...site, kind: { ...site.kind, params: strength(site.kind, value) } }];
  return { ...others, perturb: { ...perturb, sites: { [next]: changed } } };
}

/** The parameters of a kind with another strength, which of a bit flip is its rate. */
function strength(
  { name, params }: PerturbSite['kind'],
  value: number
): NonNullable<PerturbSite['kind']['params']> {
  const has = params ?? {};
  const isRate = own(has, 'rate') !== undefined || name === 'bit_flip';
  return { ...has, [isRate ? 'rate' : 'coefficient']: value };
}

const DEFAULTS: Readonly<Record<string, unknown>> = {
  tokens: 64,
  temperature: 1,
  top_k: 0,
  top_p: 1,
  seed: 0,
  samples: 1,
  candidates: 20,
  lens: 0
};

function isDefault(name: string, value: unknown): boolean {
  const isEmpty = Array.isArray(value) && value.length === 0 && name === 'stop';
  return value === null || value === undefined || value === false || isEmpty || own(DEFAULTS, name) === value;
}
