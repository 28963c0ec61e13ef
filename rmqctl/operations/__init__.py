"""Operations on stores that brokers do not have."""
