import * as React from 'react';

/** A name and its number. */
export function Term(props: {
  name: string;
  value: string;
  title?: string;
  /** Characters that are kept free for the value: what comes after it stays where it is while the number changes. */
  room?: number;
  warn?: boolean;
}): React.ReactElement {
  return (
    <span className={`jp-MegalensTerm${props.warn ? ' jp-mod-warn' : ''}`} title={props.title}>
      {props.name !== '' && <span className="jp-MegalensTerm-name">{props.name} </span>}
      <span
        className="jp-MegalensTerm-value"
        style={props.room === undefined ? undefined : { minWidth: `${props.room}ch` }}
      >
        {props.value}
      </span>
    </span>
  );
}
