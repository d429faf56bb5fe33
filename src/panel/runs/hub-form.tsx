import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IForeignHub } from '../../client/runs-api';

/** Stands for our own protocol where a dialect is chosen. */
const OURS = 'megalens';

/** Hubs of peers reachable by address, by the name that the server and `hello.origin` give the dialect. */
export const DIALECTS: readonly { id: IForeignHub['dialect']; name: string }[] = [
  { id: '3606', name: 'Megatron-LM 3606' },
  { id: 'T1', name: 'MegatronApp training' },
  { id: 'T2', name: 'MegatronApp training, megascope-update' },
  { id: 'inference', name: 'MegatronApp inference' }
];

export interface IHubAddress {
  address: string;
  /** Of one of our hubs. */
  token: string;
  /** A peer's hub; null is one of ours. */
  foreign: IForeignHub | null;
}

/** Fields for a hub's address; what its dialect needs and no more. */
export function HubForm(props: {
  trans: TranslationBundle;
  /** Notified at every key, and first of all as it is. */
  change: (answer: IHubAddress) => void;
}): React.ReactElement {
  const { trans, change } = props;
  const [speaks, setSpeaks] = React.useState(OURS);
  const [address, setAddress] = React.useState('ws://127.0.0.1:');
  const [token, setToken] = React.useState('');
  const [prompt, setPrompt] = React.useState('');
  const dialect = DIALECTS.find(each => each.id === speaks)?.id ?? null;
  const asks = dialect === 'inference';
  React.useEffect(() => {
    const foreign = dialect === null ? null : { dialect, ...(asks ? { prompts: [prompt] } : {}) };
    change({ address: address.trim(), token: dialect === null ? token.trim() : '', foreign });
  });
  return (
    <>
      <p>
        {dialect === null
          ? trans.__(
              'The Jupyter server makes the connection; the administrator must have allowed the address. The token is in the hub’s runtime file.'
            )
          : trans.__(
              'The Jupyter server follows this hub and translates what it sends; the administrator must have allowed the address. It numbers no steps, so they are inferred.'
            )}
      </p>
      <label>
        {trans.__('Protocol')}
        <select className="jp-mod-styled" value={speaks} onChange={event => setSpeaks(event.target.value)}>
          <option value={OURS}>{trans.__('Megalens')}</option>
          {DIALECTS.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        {trans.__('Address')}
        <input
          className="jp-mod-styled"
          type="text"
          spellCheck={false}
          value={address}
          placeholder={trans.__('ws://host:port')}
          onChange={event => setAddress(event.target.value)}
        />
      </label>
      {dialect === null && (
        <label>
          {trans.__('Token')}
          <input
            className="jp-mod-styled"
            type="password"
            autoComplete="off"
            value={token}
            onChange={event => setToken(event.target.value)}
          />
        </label>
      )}
      {asks && (
        <label>
          {trans.__('Prompt to continue')}
          <input
            className="jp-mod-styled"
            type="text"
            maxLength={4000}
            value={prompt}
            onChange={event => setPrompt(event.target.value)}
          />
        </label>
      )}
    </>
  );
}
